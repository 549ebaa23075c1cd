// SPDX-License-Identifier: Apache-2.0
//! libnnpa_network: the client API over NetworkService, for C that `nnpa network generate` wrote.
//! Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, ai_<name>_create to
//! ai_<name>_get_info. The server chooses type and code of an error; if it was not reached, the
//! library does.

pub mod ai;
pub mod instance;
pub mod report;
pub mod weights;
pub mod wire;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::abi::memory::{swap_to_little_endian, text};
use crate::call::process_session;
use crate::call::session::Session;
use crate::network::ai::{Buffer, Error, Model, Params, Report};
use crate::network::instance::{Instance, Slot, call, path};
use crate::network::weights::{view, weights_message};
use crate::network::wire::{AiErrorCode as Code, AiErrorType as Type};
use crate::process::diagnostics;
use crate::rpc::channel::decoded;
use crate::rpc::failure::Failure;
use crate::rpc::frame::Frame;

const CHUNK_BYTES: usize = 1 << 20;

/// Prints on stderr why a call did not reach its network, and returns the error of the call.
fn lost(name: &str, failure: &Failure, kind: Type) -> Error {
    let (why, reason) = match failure {
        Failure::Unreachable(why) | Failure::Lost(why) => (why, ""),
        Failure::Refused {
            reason, message, ..
        } => (message, reason.as_str()),
    };
    diagnostics::explain(name, why);
    let kind = match reason {
        "SESSION_NOT_FOUND" => Type::AiErrorInvalidHandle,
        "TENSOR_QUOTA_EXCEEDED" | "CALL_QUOTA_EXCEEDED" => Type::AiErrorAllocationFailed,
        _ => kind,
    };
    Error::new(kind, Code::Network)
}

fn no_such_network() -> Error {
    Error::new(Type::AiErrorInvalidHandle, Code::Network)
}

fn header(model: &Model, session: &Session) -> Option<wire::CreateNetworkHeader> {
    let written = unsafe { view(model.header, model.header_size as usize) };
    let mut header = wire::CreateNetworkHeader::decode(written).ok()?;
    let tools = model.tools_api_version;
    header.session.clone_from(&session.server.name);
    header.type_sizes = Bytes::copy_from_slice(&model.type_sizes);
    header.tools_api_version = Some(wire::Version {
        major: tools.major.into(),
        minor: tools.minor.into(),
        micro: tools.micro.into(),
    });
    Some(header)
}

/// Uploads a model; the program's static memory is copied chunk by chunk.
fn upload(
    session: &Session,
    model: &'static Model,
) -> Result<wire::CreateNetworkResponse, Failure> {
    use wire::create_network_request::Message as Part;
    let unreadable = || Failure::Lost("nnpa_network_model.header cannot be read".to_owned());
    let header = header(model, session).ok_or_else(unreadable)?;
    let bytes = unsafe { view(model.model, usize::try_from(model.model_size).unwrap_or(0)) };
    let chunks = bytes.chunks(CHUNK_BYTES);
    let parts = std::iter::once(Part::Header(header))
        .chain(chunks.map(|chunk| Part::Chunk(Bytes::copy_from_slice(chunk))));
    let messages = parts.map_while(|part| {
        let message = Some(part);
        Frame::of(&wire::CreateNetworkRequest { message }).ok()
    });
    let connection = &session.server.connection;
    decoded(connection.send_stream(&path("CreateNetwork"), messages)?)
}

fn uploaded(model: &'static Model) -> Result<(Arc<Session>, wire::CreateNetworkResponse), Failure> {
    let mut session = process_session::session()?;
    let mut answer = upload(&session, model);
    if let Err(failure) = &answer
        && session.is_lost_by(failure)
    {
        session = process_session::renew(&session)?;
        answer = upload(&session, model);
    }
    answer.map(|response| (session, response))
}

fn create(network: &mut *mut c_void, model: &'static Model) -> Result<Error, Failure> {
    let (session, answer) = uploaded(model)?;
    let Some(created) = answer.network.filter(|_| answer.error.is_none()) else {
        return Ok(Error::of(answer.error.as_ref()));
    };
    if let Some(handle) = instance::registered(&session.server.name, &created.name) {
        *network = handle;
        return Ok(Error::NONE);
    }
    let missing = || Failure::Lost("the network is gone".to_owned());
    let report = instance::info(&session, &created.name)?.ok_or_else(missing)?;
    *network = instance::register(Instance::new(session, created.name, model, &report));
    Ok(Error::NONE)
}

/// ai_<name>_create. `config` is always empty, and is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_network_create(
    network: *mut *mut c_void,
    model: *const Model,
    _config: *const Buffer,
) -> Error {
    let (Some(network), Some(model)) = (unsafe { network.as_mut() }, unsafe { model.as_ref() })
    else {
        return Error::new(Type::AiErrorInvalidHandle, Code::InvalidPtr);
    };
    *network = ptr::null_mut();
    create(network, model)
        .unwrap_or_else(|failure| lost("nnpa_network_create", &failure, Type::AiErrorCreateFailed))
}

unsafe fn bind(instance: &Instance, params: Option<&Params>) -> Result<bool, Failure> {
    let message = params.map(|params| {
        let mut activations = params.activations.message();
        activations.data = (!params.activations.data.is_null()).then(Bytes::new);
        wire::NetworkParams {
            params: Some(unsafe { weights_message(instance.model, &params.params) }),
            activations: Some(activations),
        }
    });
    let request = wire::InitNetworkRequest {
        session: instance.session.server.name.clone(),
        network: instance.name.clone(),
        params: message,
        model_signature: unsafe { text(instance.model.signature) }.unwrap_or_default(),
        ..wire::InitNetworkRequest::default()
    };
    let answer: wire::InitNetworkResponse = call(&instance.session, "InitNetwork", &request)?;
    let (true, Some(params)) = (answer.ok, params) else {
        return Ok(false);
    };
    if let Some(report) = instance::info(&instance.session, &instance.name)? {
        let description = &mut instance.state().description;
        description.bind(&report, &params.params, &params.activations);
    }
    Ok(true)
}

/// ai_<name>_init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_network_init(network: *mut c_void, params: *const Params) -> bool {
    let Some(instance) = instance::find(network) else {
        return false;
    };
    let bound = unsafe { bind(&instance, params.as_ref()) };
    let slot = match &bound {
        Ok(true) => return true,
        Ok(false) => Slot::Server,
        Err(failure) => Slot::Local(lost("nnpa_network_init", failure, Type::AiErrorInitFailed)),
    };
    instance.fail(slot);
    false
}

/// Memory of the program for a result: address, bytes, and bytes of an element.
type Target = (*mut c_void, usize, usize);

/// Returns the inputs as messages. Memory of a buffer that does not match the model is not read.
unsafe fn inputs(instance: &Instance, buffers: *const Buffer) -> Vec<wire::Buffer> {
    let state = instance.state();
    let (end, base) = (&state.description.inputs, state.description.activations());
    let count = end.count(buffers);
    let message_of = |index: usize| {
        let buffer = unsafe { &*buffers.add(index) };
        let (mut message, memory) = end.message(index, buffer, base);
        let size = match buffer.is_like(&end.buffers[index]) {
            true => buffer.bytes(buffer.n_batches),
            false => 0,
        };
        message.data = (!memory.is_null()).then(|| {
            let mut data = unsafe { view(memory.cast(), size) }.to_vec();
            swap_to_little_endian(&mut data, buffer.element_bytes());
            data.into()
        });
        message
    };
    (0..count).map(message_of).collect()
}

/// Returns the outputs as messages, and the memory for their contents.
unsafe fn outputs(instance: &Instance, buffers: *mut Buffer) -> (Vec<wire::Buffer>, Vec<Target>) {
    let state = instance.state();
    let (end, base) = (&state.description.outputs, state.description.activations());
    let count = end.count(buffers);
    let message_of = |index: usize| {
        let buffer = unsafe { &*buffers.add(index) };
        let (mut message, memory) = end.message(index, buffer, base);
        message.data = (!memory.is_null()).then(Bytes::new);
        let size = end.buffers[index].bytes(buffer.n_batches);
        (message, (memory, size, buffer.element_bytes()))
    };
    (0..count).map(message_of).unzip()
}

fn run(
    instance: &Instance,
    inputs: Vec<wire::Buffer>,
    outputs: Option<(Vec<wire::Buffer>, Vec<Target>)>,
) -> Result<i32, Failure> {
    let forward = outputs.is_none();
    let (outputs, targets) = outputs.unwrap_or_default();
    let request = wire::RunNetworkRequest {
        session: instance.session.server.name.clone(),
        network: instance.name.clone(),
        inputs,
        outputs,
        forward,
    };
    let answer: wire::RunNetworkResponse = call(&instance.session, "RunNetwork", &request)?;
    for ((target, size, width), output) in targets.into_iter().zip(&answer.outputs) {
        let mut data = output.data.clone().unwrap_or_default().to_vec();
        if data.len() != size || target.is_null() {
            return Err(Failure::Lost("outputs of another size".to_owned()));
        }
        swap_to_little_endian(&mut data, width);
        unsafe { target.cast::<u8>().copy_from(data.as_ptr(), size) };
    }
    Ok(answer.n_batches)
}

fn finished(name: &str, instance: &Instance, result: Result<i32, Failure>) -> i32 {
    match result {
        Ok(count) if count > 0 => count,
        Ok(count) => {
            instance.fail(Slot::Server);
            count
        }
        Err(failure) => {
            let error = lost(name, &failure, Type::AiErrorInvalidState);
            instance.fail(Slot::Local(error));
            -1
        }
    }
}

/// ai_<name>_run: batches processed; 0 for an invalid handle, -1 for other failures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_network_run(
    network: *mut c_void,
    input: *const Buffer,
    output: *mut Buffer,
) -> i32 {
    let Some(instance) = instance::find(network) else {
        return 0;
    };
    let (inputs, outputs) = unsafe { (inputs(&instance, input), outputs(&instance, output)) };
    let result = run(&instance, inputs, Some(outputs));
    finished("nnpa_network_run", &instance, result)
}

/// ai_<name>_forward: as run, without outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_network_forward(network: *mut c_void, input: *const Buffer) -> i32 {
    let Some(instance) = instance::find(network) else {
        return 0;
    };
    let result = unsafe { run(&instance, inputs(&instance, input), None) };
    finished("nnpa_network_forward", &instance, result)
}

fn server_error(instance: &Instance) -> Result<Error, Failure> {
    let request = wire::GetNetworkErrorRequest {
        session: instance.session.server.name.clone(),
        network: instance.name.clone(),
        sequence: 0,
    };
    let answer: wire::GetNetworkErrorResponse =
        call(&instance.session, "GetNetworkError", &request)?;
    if let Some(error) = answer.error.as_ref().filter(|error| !error.text.is_empty()) {
        diagnostics::explain("nnpa_network_get_error", &error.text);
    }
    Ok(Error::of(answer.error.as_ref()))
}

/// ai_<name>_get_error: the first error since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_network_get_error(network: *mut c_void) -> Error {
    let Some(instance) = instance::find(network) else {
        return no_such_network();
    };
    let slot = std::mem::replace(&mut instance.state().slot, Slot::Empty);
    if slot == Slot::Empty {
        return Error::NONE;
    }
    let answer = server_error(&instance);
    match (slot, answer) {
        (Slot::Local(error), _) => error,
        (_, Ok(error)) => error,
        (_, Err(failure)) => lost(
            "nnpa_network_get_error",
            &failure,
            Type::AiErrorInvalidState,
        ),
    }
}

/// ai_<name>_get_info; the report's memory stays until the network is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_network_get_info(network: *mut c_void, report: *mut Report) -> bool {
    let (Some(instance), false) = (instance::find(network), report.is_null()) else {
        return false;
    };
    unsafe { report.write(instance.state().description.report) };
    true
}

/// ai_<name>_destroy: NULL, or the handle if the network was not destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_network_destroy(network: *mut c_void) -> *mut c_void {
    let Some(instance) = instance::find(network) else {
        return network;
    };
    let request = wire::DestroyNetworkRequest {
        session: instance.session.server.name.clone(),
        network: instance.name.clone(),
    };
    let answer: Result<wire::DestroyNetworkResponse, Failure> =
        call(&instance.session, "DestroyNetwork", &request);
    let error = answer.ok().and_then(|response| response.error);
    if error.is_some_and(|error| error.r#type() == Type::AiErrorDeallocationFailed) {
        instance.fail(Slot::Server);
        return network;
    }
    instance::forget(network);
    ptr::null_mut()
}
