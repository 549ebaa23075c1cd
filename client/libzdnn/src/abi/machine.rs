// SPDX-License-Identifier: Apache-2.0
//! The cached result of NNPA-QAF on the session's machine.

use crate::wire;

const BLOCK_BYTES: usize = 256;

/// The query result: big-endian fields at the byte offsets of the NNPA-QAF parameter block.
#[derive(Clone)]
pub struct Query {
    block: [u8; BLOCK_BYTES],
    /// 0x00MMmmpp; 0 if no known signature fits.
    pub hardware_version: u32,
}

impl Query {
    /// Reads the server's description of a machine; all zeros without NNPA.
    pub fn of(machine: Option<&wire::Machine>) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let source = machine.map_or(&[][..], |machine| &machine.qaf_block[..]);
        let count = source.len().min(BLOCK_BYTES);
        block[..count].copy_from_slice(&source[..count]);
        let hardware_version = machine.map_or(0, |machine| machine.hardware_version);
        Self {
            block,
            hardware_version,
        }
    }

    fn field<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        std::array::from_fn(|index| self.block[at + index])
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.field(at))
    }

    fn bit(&self, at: usize, bit: usize) -> bool {
        self.block[at + bit / 8] & (0x80 >> (bit % 8)) != 0
    }

    /// Returns whether a function is installed; the library reads the low 16 bits of the code.
    pub fn has_function(&self, code: i32) -> bool {
        let code = code.cast_unsigned() as usize & 0xFFFF;
        code < 256 && self.bit(0, code)
    }

    /// Returns whether a parameter block format is installed; the library reads the low 8 bits.
    pub fn has_parmblk_format(&self, number: i32) -> bool {
        let number = number.cast_unsigned() as usize & 0xFF;
        number < 128 && self.bit(32, number)
    }

    /// Returns whether all data types of a mask are installed.
    pub fn has_data_types(&self, mask: u16) -> bool {
        u16::from_be_bytes(self.field(48)) & mask == mask
    }

    /// Returns whether all layout formats of a mask are installed.
    pub fn has_layout_formats(&self, mask: u32) -> bool {
        self.word(52) & mask == mask
    }

    /// Returns whether all conversions of a mask are installed.
    pub fn has_conversions(&self, mask: u16) -> bool {
        u16::from_be_bytes(self.field(72)) & mask == mask
    }

    /// Largest size of any dimension, elements.
    pub fn max_dim_idx_size(&self) -> u32 {
        self.word(60)
    }

    /// Largest size of dimension 1 to 4, elements; 0 for other numbers.
    pub fn max_for_dim(&self, dimension: u8) -> u32 {
        let own = match dimension {
            4 => self.word(88),
            3 => self.word(92),
            2 => self.word(96),
            1 => self.word(100),
            _ => return 0,
        };
        match own {
            0 => self.max_dim_idx_size(),
            own => own,
        }
    }

    /// Largest tensor, bytes.
    pub fn max_tensor_size(&self) -> u64 {
        u64::from_be_bytes(self.field(64))
    }
}
