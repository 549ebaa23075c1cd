// SPDX-License-Identifier: Apache-2.0
//! The description of a network, in memory that C may keep pointers into until it is destroyed.

use std::ffi::{CString, c_void};
use std::ptr;

use crate::network::ai::{Buffer, Quantisation, Report, Version};
use crate::network::wire;

/// Inputs or outputs: C's array, and the place of each in the activations.
pub struct End {
    pub buffers: Box<[Buffer]>,
    offsets: Vec<Option<u64>>,
    _meta: Vec<Option<Quantisation>>,
}

impl End {
    fn of(messages: &[wire::Buffer]) -> Self {
        let mut buffers: Box<[Buffer]> = messages.iter().map(Buffer::described).collect();
        let quantised = messages.iter().map(|message| {
            let meta_info = message.meta_info.as_ref()?;
            Some(Quantisation::of(meta_info, message.format.unwrap_or(0)))
        });
        let mut meta: Vec<_> = quantised.collect();
        for (buffer, quantisation) in buffers.iter_mut().zip(&mut meta) {
            let address = quantisation.as_mut().map(Quantisation::address);
            buffer.meta_info = address.unwrap_or(ptr::null_mut());
        }
        let offsets = vec![None; messages.len()];
        Self {
            buffers,
            offsets,
            _meta: meta,
        }
    }

    /// Sets the addresses of tensors in the activations, and clears all others.
    fn place(&mut self, messages: &[wire::Buffer], activations: *mut c_void) {
        let offsets = messages.iter().map(|message| message.activations_offset);
        self.offsets = offsets.collect();
        for (buffer, offset) in self.buffers.iter_mut().zip(&self.offsets) {
            buffer.data = offset.map_or(ptr::null_mut(), |at| address(activations, at));
        }
    }

    /// Returns how many descriptors lie at an address; none at NULL.
    pub fn count(&self, buffers: *const Buffer) -> usize {
        if buffers.is_null() {
            0
        } else {
            self.buffers.len()
        }
    }

    /// Returns the message of the application's descriptor of a tensor, without contents, and its
    /// memory. The message has an offset if that is the tensor's own place in the activations.
    pub fn message(
        &self,
        index: usize,
        buffer: &Buffer,
        activations: *mut c_void,
    ) -> (wire::Buffer, *mut c_void) {
        let mut message = buffer.message();
        let offset = self.offsets.get(index).copied().flatten();
        let inside = offset.map_or(ptr::null_mut(), |at| address(activations, at));
        let data = if buffer.data.is_null() {
            inside
        } else {
            buffer.data
        };
        let is_inside = !data.is_null() && data == inside;
        message.activations_offset = offset.filter(|_| is_inside);
        (message, data)
    }
}

fn address(base: *mut c_void, offset: u64) -> *mut c_void {
    base.cast::<u8>()
        .wrapping_add(usize::try_from(offset).unwrap_or(0))
        .cast()
}

fn version(message: Option<&wire::Version>) -> Version {
    let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    message.map_or_else(Version::default, |version| Version {
        major: byte(version.major),
        minor: byte(version.minor),
        micro: byte(version.micro),
        reserved: 0,
    })
}

/// A network's own description.
pub struct Description {
    pub inputs: End,
    pub outputs: End,
    /// The description as C has it; its pointers are to the rest of this one.
    pub report: Report,
    _texts: Vec<CString>,
}

// Its pointers are to its own boxes, or to memory that C has lent for good.
unsafe impl Send for Description {}

impl Description {
    /// Describes a network by the server's report.
    pub fn of(report: &wire::NetworkReport) -> Self {
        let mut texts = Vec::new();
        let mut text = |words: &str| {
            let text = CString::new(words.replace('\0', "")).unwrap_or_default();
            let address = text.as_ptr();
            texts.push(text);
            address
        };
        let count = |end: &End| u16::try_from(end.buffers.len()).unwrap_or(u16::MAX);
        let buffer = |buffer: Option<&wire::Buffer>| buffer.map_or(Buffer::NULL, Buffer::described);
        let (mut inputs, mut outputs) = (End::of(&report.inputs), End::of(&report.outputs));
        let report = Report {
            model_name: text(&report.model_name),
            model_signature: text(&report.model_signature),
            model_datetime: text(&report.model_datetime),
            compile_datetime: text(&report.compile_datetime),
            runtime_revision: text(&report.runtime_revision),
            runtime_version: version(report.runtime_version.as_ref()),
            tool_revision: text(&report.tool_revision),
            tool_version: version(report.tool_version.as_ref()),
            tool_api_version: version(report.tool_api_version.as_ref()),
            api_version: version(report.api_version.as_ref()),
            interface_api_version: version(report.interface_api_version.as_ref()),
            n_macc: report.n_macc,
            n_inputs: count(&inputs),
            n_outputs: count(&outputs),
            inputs: inputs.buffers.as_mut_ptr(),
            outputs: outputs.buffers.as_mut_ptr(),
            activations: buffer(report.activations.as_ref()),
            params: buffer(report.params.as_ref()),
            n_nodes: report.n_nodes,
            signature: report.signature,
        };
        Self {
            inputs,
            outputs,
            report,
            _texts: texts,
        }
    }

    /// Where the application's activations begin; NULL before init.
    pub fn activations(&self) -> *mut c_void {
        self.report.activations.data
    }

    /// Takes over places in the activations, once init has bound memory.
    pub fn bind(&mut self, report: &wire::NetworkReport, weights: &Buffer, activations: &Buffer) {
        self.report.params.data = weights.data;
        self.report.activations.data = activations.data;
        self.inputs.place(&report.inputs, activations.data);
        self.outputs.place(&report.outputs, activations.data);
    }
}
