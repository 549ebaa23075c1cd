// SPDX-License-Identifier: Apache-2.0
//! Ztensors of one call on their way: inline, or in chunks where they are too large for it.

use std::sync::Arc;

use bytes::Bytes;

use crate::abi::checks;
use crate::abi::descriptor::stick_bytes;
use crate::abi::{Desc, Ztensor};
use crate::call::sanitizer;
use crate::call::sanitizer::Watch;
use crate::call::session::{Session, new_id};
use crate::rpc::failure::Failure;
use crate::transfer::chunks;
use crate::transfer::content_cache::{self, Digest, Kept, Name};
use crate::transfer::shared_memory::Place;
use crate::wire::tensor_ref::Tensor;
use crate::wire::ztensor::Contents;
use crate::wire::{self, Provenance, TensorRef};

/// What a message holds beside tensors is smaller than this, bytes.
const MESSAGE_MARGIN: u64 = 1 << 20;

/// The byte order of the host: sticks in memory are native.
pub fn byte_order() -> i32 {
    if cfg!(target_endian = "big") {
        wire::ByteOrder::BigEndian.into()
    } else {
        wire::ByteOrder::LittleEndian.into()
    }
}

struct Output {
    name: &'static str,
    ztensor: *mut Ztensor,
    id: u64,
    /// What the server's cache calls what is written; empty where it keeps nothing.
    name_there: Bytes,
    /// What it calls what was written there before; empty where it holds nothing of that.
    instead_of: Bytes,
    /// Where it goes in shared memory; none where it travels.
    place: Option<Arc<Place>>,
}

/// Sticks that the server's cache has once the call has succeeded.
struct Sent {
    digest: Digest,
    size: u64,
}

/// Sticks that an operand of the call has named: another one that is the same memory has their name.
struct Named {
    address: *const u8,
    size: u64,
    kind: u32,
    name: Name,
}

/// The operands of one call, collected while its message is built.
pub struct Operands<'a> {
    pub session: &'a Session,
    pub misaligned: bool,
    pub failure: Option<Failure>,
    outputs: Vec<Output>,
    temporaries: Vec<u64>,
    sent: Vec<Sent>,
    named: Vec<Named>,
    room: u64,
    /// Where sticks and arrays lie in shared memory until the call is over.
    places: Vec<Place>,
    /// The call, for a session that sanitizes.
    pub watch: Option<Watch>,
    /// Where arrays of the program lie in shared memory, or go to.
    pub shared_data: Vec<wire::Extent>,
}

fn structure(ztensor: &Ztensor, desc: &Desc, pre: Option<Desc>) -> wire::Ztensor {
    wire::Ztensor {
        pre_transformed_desc: pre.map(|one| one.message()),
        transformed_desc: Some(desc.message()),
        buffer_size: Some(ztensor.buffer_size),
        null_buffer: ztensor.buffer.is_null(),
        is_transformed: ztensor.is_transformed != 0,
        rec_scale: ztensor.rec_scale,
        offset: ztensor.offset,
        byte_order: byte_order(),
        ..wire::Ztensor::default()
    }
}

impl<'a> Operands<'a> {
    /// Starts to collect.
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            misaligned: false,
            failure: None,
            outputs: Vec::new(),
            temporaries: Vec::new(),
            sent: Vec::new(),
            named: Vec::new(),
            places: Vec::new(),
            shared_data: Vec::new(),
            watch: Watch::begin(),
            room: session
                .limits
                .max_message_bytes
                .saturating_sub(MESSAGE_MARGIN),
        }
    }

    /// Returns an input with its sticks. Where dims or size exceed the machine's limits there may
    /// be no memory behind it, and none is read.
    ///
    /// # Safety
    /// The ztensor and its buffer are valid, as C asks.
    pub unsafe fn input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        unsafe { self.read(ztensor, false, false) }
    }

    /// Returns an input of a function that reads the pre-transformed descriptor.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn whole_input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        unsafe { self.read(ztensor, true, false) }
    }

    /// Returns an input that is a tensor of the session, for answers that come in chunks.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn stored_input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        unsafe { self.read(ztensor, true, true) }
    }

    unsafe fn read(
        &mut self,
        ztensor: *const Ztensor,
        whole: bool,
        stored: bool,
    ) -> Option<TensorRef> {
        let provenance = unsafe { self.provenance(&*ztensor, false) };
        let reference = unsafe { self.sent(ztensor, whole, stored) };
        reference.map(|one| TensorRef { provenance, ..one })
    }

    /// Returns what a session that sanitizes is told of an operand's memory.
    unsafe fn provenance(&self, ztensor: &Ztensor, writes: bool) -> Option<Provenance> {
        let watch = self.watch.as_ref()?;
        let size = stick_bytes(&unsafe { ztensor.transformed() });
        Some(unsafe { watch.operand(ztensor.buffer, size, writes) })
    }

    unsafe fn sent(
        &mut self,
        ztensor: *const Ztensor,
        whole: bool,
        stored: bool,
    ) -> Option<TensorRef> {
        let ztensor = unsafe { &*ztensor };
        let desc = unsafe { ztensor.transformed() };
        let pre = whole.then(|| unsafe { ztensor.pre_transformed() });
        let mut message = structure(ztensor, &desc, pre);
        self.misaligned |= ztensor.is_misaligned();
        let size = stick_bytes(&desc);
        let readable = checks::dims_fit(&desc, &self.session.query).is_ok();
        if !readable || ztensor.buffer.is_null() {
            return inline(message);
        }
        let sticks = unsafe { chunks::memory(ztensor.buffer, size) };
        if self.is_cached(&mut message, sticks, desc.kind) {
            return match stored {
                true => self.uploaded(message, &[]),
                false => inline(message),
            };
        }
        let shared = self.session.shared.as_ref().filter(|_| !stored);
        if let Some(place) = shared.and_then(|shared| shared.put(sticks)) {
            message.contents = Some(Contents::Shared(place.extent()));
            self.places.push(place);
            return inline(message);
        }
        if stored || size > self.session.limits.max_inline_bytes || size > self.room {
            return self.uploaded(message, sticks);
        }
        self.room -= size;
        message.contents = Some(Contents::Sticks(unsafe { chunks::lent(sticks) }));
        inline(message)
    }

    /// Names sticks in the place of their bytes, if the server has them, or gets them with an operand
    /// of this call; else asks it to keep them.
    fn is_cached(&mut self, message: &mut wire::Ztensor, sticks: &[u8], kind: u32) -> bool {
        let Some(known) = &self.session.contents else {
            return false;
        };
        if !known.takes(sticks.len() as u64) {
            return false;
        }
        let (address, size) = (sticks.as_ptr(), sticks.len() as u64);
        let is_same = |one: &&Named| (one.address, one.size, one.kind) == (address, size, kind);
        if let Some(one) = self.named.iter().find(is_same) {
            message.contents = Some(Contents::Cached(one.name.name.clone()));
            return true;
        }
        let name = match known.name(sticks, kind) {
            Ok(name) => {
                message.contents = Some(Contents::Cached(name.name.clone()));
                name
            }
            Err(digest) => {
                let name = Bytes::copy_from_slice(&digest);
                if self.sent.iter().any(|one| one.digest == digest) {
                    message.contents = Some(Contents::Cached(name.clone()));
                } else {
                    message.cache_as = name.clone();
                    self.sent.push(Sent { digest, size });
                }
                Name::of(name)
            }
        };
        self.named.push(Named {
            address,
            size,
            kind,
            name,
        });
        message.contents.is_some()
    }

    /// Returns an output without sticks; they come back in the answer.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        unsafe { self.write(name, ztensor, false, false) }
    }

    /// Returns an output of a function that reads the pre-transformed descriptor.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn whole_output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        unsafe { self.write(name, ztensor, true, false) }
    }

    /// Returns an output that is a tensor of the session, for arrays that go in chunks.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn stored_output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        unsafe { self.write(name, ztensor, true, true) }
    }

    unsafe fn write(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        whole: bool,
        stored: bool,
    ) -> Option<TensorRef> {
        let provenance = unsafe { self.provenance(&*target, true) };
        let reference = unsafe { self.written(name, target, whole, stored) };
        reference.map(|one| TensorRef { provenance, ..one })
    }

    unsafe fn written(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        whole: bool,
        stored: bool,
    ) -> Option<TensorRef> {
        let ztensor = unsafe { &*target };
        let desc = unsafe { ztensor.transformed() };
        let pre = whole.then(|| unsafe { ztensor.pre_transformed() });
        let mut message = structure(ztensor, &desc, pre);
        self.misaligned |= ztensor.is_misaligned();
        let large = stick_bytes(&desc) > self.session.limits.max_inline_bytes;
        let fits = checks::dims_fit(&desc, &self.session.query).is_ok();
        message.null_buffer |= large && !fits;
        let size = stick_bytes(&desc);
        let known = self.session.contents.as_ref();
        let keeper = known.filter(|known| fits && known.takes(size));
        let name_there = keeper.map_or_else(Bytes::new, |_| content_cache::new_name());
        message.cache_as = name_there.clone();
        let shared = self.session.shared.as_ref();
        let shared = shared.filter(|_| fits && !stored && !ztensor.buffer.is_null());
        let place = shared.and_then(|shared| shared.place(size)).map(Arc::new);
        message.sticks_to = place.as_ref().map(|place| place.extent());
        message.cached_in_place = place.is_some() && keeper.is_some();
        let chunked = (large && place.is_none()) || stored;
        let whole_in_answer = keeper.filter(|_| !chunked);
        let before = whole_in_answer.map(|known| known.written_to(ztensor.buffer as usize));
        let instead_of = before.unwrap_or_default();
        message.cache_instead_of = instead_of.clone();
        let reference = match chunked && fits && !ztensor.buffer.is_null() {
            true => self.uploaded(message, &[]),
            false => inline(message),
        };
        let id = match reference.as_ref().and_then(|one| one.tensor.as_ref()) {
            Some(Tensor::Id(id)) => *id,
            _ => 0,
        };
        self.outputs.push(Output {
            name,
            ztensor: target,
            id,
            name_there,
            instead_of,
            place,
        });
        reference
    }

    /// Makes a tensor of the session for this call: with sticks, or with zeros for none.
    pub fn uploaded(&mut self, message: wire::Ztensor, sticks: &[u8]) -> Option<TensorRef> {
        let id = new_id();
        match chunks::write_sticks(self.session, id, message, sticks) {
            Ok(()) => self.temporaries.push(id),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
        named(Tensor::Id(id))
    }

    /// Puts arrays of the program into shared memory; tells whether all of them are there.
    pub fn share(&mut self, arrays: &[&[u8]]) -> bool {
        let Some(shared) = &self.session.shared else {
            return false;
        };
        let places: Vec<Place> = arrays.iter().map_while(|one| shared.put(one)).collect();
        if places.len() < arrays.len() {
            return false;
        }
        self.shared_data = places.iter().map(Place::extent).collect();
        self.places.extend(places);
        !arrays.is_empty()
    }

    /// Finds a place in shared memory for an array that the server writes.
    pub fn share_room(&mut self, size: u64) -> bool {
        let shared = self.session.shared.as_ref();
        let place = shared.and_then(|shared| shared.place(size));
        self.shared_data = place.iter().map(Place::extent).collect();
        self.places.extend(place);
        !self.shared_data.is_empty()
    }

    /// Copies an array out of its place in shared memory.
    ///
    /// # Safety
    /// The array is valid for the bytes that the server wrote.
    pub unsafe fn take_shared(&self, told: &wire::Extent, array: *mut u8) -> Result<(), Failure> {
        let place = self.shared_data.first();
        let place = place.and_then(|asked| self.places.iter().find(|one| one.extent() == *asked));
        unsafe { taken("the array", place, told, array) }
    }

    /// Takes note of what the server's cache keeps of an output.
    unsafe fn note(&self, output: &Output, sticks: &[u8], place: Option<Arc<Place>>) {
        if let Some(known) = &self.session.contents
            && !output.name_there.is_empty()
        {
            let ztensor = unsafe { &*output.ztensor };
            known.note_output(Kept {
                name: output.name_there.clone(),
                kind: unsafe { ztensor.transformed() }.kind,
                buffer: ztensor.buffer as usize,
                instead_of: &output.instead_of,
                sticks,
                place,
            });
        }
    }

    /// Copies what the operation wrote into the program's memory, and the states.
    ///
    /// # Safety
    /// The outputs' structures and buffers are still valid.
    pub unsafe fn store(&self, result: &wire::OperationResult) -> Result<(), Failure> {
        if let Some(known) = &self.session.contents {
            for Sent { digest, size } in &self.sent {
                known.note_sent(*digest, *size);
            }
        }
        for info in &result.outputs {
            let found = self.outputs.iter().find(|one| one.name == info.operand);
            let (Some(output), Some(told)) = (found, &info.ztensor) else {
                continue;
            };
            let ztensor = unsafe { &mut *output.ztensor };
            let size = stick_bytes(&unsafe { ztensor.transformed() });
            if let Some(Contents::Sticks(sticks)) = &told.contents {
                let fits = sticks.len() as u64 == size && !ztensor.buffer.is_null();
                if !fits {
                    return Err(Failure::Lost(format!("{}: sticks do not fit", output.name)));
                }
                unsafe {
                    ztensor
                        .buffer
                        .cast::<u8>()
                        .copy_from(sticks.as_ptr(), sticks.len())
                };
                unsafe { self.note(output, sticks, None) };
            } else if let Some(Contents::Shared(place)) = &told.contents {
                let (asked, buffer) = (output.place.as_deref(), ztensor.buffer);
                unsafe { taken(output.name, asked, place, buffer.cast()) }?;
                let sticks = unsafe { chunks::memory(buffer, size) };
                unsafe { self.note(output, sticks, output.place.clone()) };
            } else if output.id != 0 {
                let (name, buffer) = (output.name_there.clone(), ztensor.buffer);
                unsafe { chunks::read_sticks(self.session, output.id, name, buffer, size) }?;
                unsafe { self.note(output, chunks::memory(buffer, size), None) };
            }
            if self.watch.is_some() {
                sanitizer::written(ztensor.buffer);
            }
            ztensor.is_transformed = u8::from(told.is_transformed);
        }
        Ok(())
    }

    /// Frees the tensors that the call made on the server. What cannot be freed ends with the
    /// session.
    pub fn release(&mut self) {
        for id in self.temporaries.drain(..) {
            let ztensor = named(Tensor::Id(id));
            let free = wire::FreeZtensorBuffer { ztensor };
            drop(self.session.execute(wire::Operation {
                operation: Some(wire::operation::Operation::FreeZtensorBuffer(free)),
                housekeeping: true,
                ..wire::Operation::default()
            }));
        }
    }
}

/// Copies from a place, which is where the server must tell that it wrote.
unsafe fn taken(
    name: &str,
    asked: Option<&Place>,
    told: &wire::Extent,
    target: *mut u8,
) -> Result<(), Failure> {
    let is_asked = |one: &&Place| {
        let asked = one.extent();
        asked.offset == told.offset && told.size <= asked.size
    };
    let elsewhere = || format!("{name}: another place in shared memory than asked for");
    let place = asked.filter(is_asked);
    let place = place.ok_or_else(|| Failure::Lost(elsewhere()))?;
    let bytes = &place.bytes()[..usize::try_from(told.size).unwrap_or(0)];
    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

fn inline(message: wire::Ztensor) -> Option<TensorRef> {
    named(Tensor::InlineZtensor(message))
}

fn named(tensor: Tensor) -> Option<TensorRef> {
    Some(TensorRef {
        tensor: Some(tensor),
        ..TensorRef::default()
    })
}
