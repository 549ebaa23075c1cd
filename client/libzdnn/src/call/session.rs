// SPDX-License-Identifier: Apache-2.0
//! A session of the server: a guest on a machine, with this process's options.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::HeaderValue;

use crate::abi::machine::Query;
use crate::call::sanitizer;
use crate::call::shortcuts;
use crate::call::waiting;
use crate::process::environment::{Endpoint, Settings};
use crate::process::{diagnostics, fault_rules, machine};
use crate::rpc::channel::{Channel, END_TIMEOUT, decoded, unary};
use crate::rpc::connection::Connection;
use crate::rpc::failure::Failure;
use crate::rpc::frame::Frame;
use crate::rpc::http2::Answers;
use crate::rpc::session_channel::SessionChannel;
use crate::rpc::stream::StreamChannel;
use crate::transfer::content_cache::ContentCache;
use crate::transfer::shared_memory::SharedMemory;
use crate::wire::{self, operation::Operation as Arm};

/// Fields that zdnn_init may change.
const OPTIONS: [&str; 5] = [
    "precheck",
    "status_diag",
    "program_check_action",
    "log_level",
    "log_module",
];

/// An open session. A change replaces it as a whole; all of its state can be sent again.
#[derive(Clone)]
pub struct Session {
    pub server: SessionChannel,
    pub query: Query,
    /// Names of sticks that need not travel, with the shortcut `content-cache`.
    pub cache: Option<Arc<ContentCache>>,
    /// Memory that the server maps, with the shortcut `shared-memory`.
    pub memory: Option<Arc<SharedMemory>>,
    /// Whether the server injects faults; local functions that can fail then ask it.
    pub has_faults: bool,
    /// Whether the library checks operations before the machine does.
    pub prechecks: bool,
    _lease: Option<Lease>,
    stream: Option<Arc<StreamChannel>>,
    /// The settings with which it was created.
    settings: Settings,
}

fn refused(message: impl Into<String>) -> Failure {
    Failure::refused("FIELD_INVALID", message.into())
}

fn fault_rules(settings: &Settings) -> Result<Vec<wire::FaultRule>, Failure> {
    let Some(path) = &settings.faults else {
        return Ok(Vec::new());
    };
    fault_rules::read(path).map_err(|why| refused(format!("ZDNN_FAULTS: {path}: {why}")))
}

/// Returns the path of the plain socket beside the Unix socket of a session's server.
fn plain_socket(endpoint: &Endpoint, session: &wire::Session) -> Option<PathBuf> {
    let path = endpoint.target.strip_prefix("unix:")?;
    let suffix = &session.plain_socket.as_ref()?.suffix;
    (!suffix.contains('/')).then(|| format!("{path}{suffix}").into())
}

/// Returns how long a stream may idle: half of the server's timeout.
fn max_idle(limits: &wire::SessionLimits) -> Duration {
    let timeout = limits
        .idle_timeout
        .and_then(|timeout| timeout.try_into().ok());
    timeout.map_or(Duration::MAX, |timeout: Duration| timeout / 2)
}

fn options(settings: &Settings) -> wire::Session {
    let action = match settings.program_check_status {
        true => wire::ProgramCheckAction::Status,
        false => wire::ProgramCheckAction::Abort,
    };
    wire::Session {
        precheck: settings.precheck,
        status_diag: settings.status_diag,
        program_check_action: action.into(),
        log_level: settings.log_level.unwrap_or_default().into(),
        log_module: settings.log_module.clone(),
        ..wire::Session::default()
    }
}

fn machine_spec(channel: &dyn Channel, text: &str) -> Result<wire::MachineSpec, Failure> {
    let (base, spec) = machine::read(text).map_err(refused)?;
    let request = wire::GetMachineRequest {
        name: format!("machines/{base}"),
    };
    let machine: wire::Machine = unary(channel, "GetMachine", &request)?;
    Ok(wire::MachineSpec {
        model: machine.model,
        ..spec
    })
}

/// Returns the ticket of the trace that a session joins.
fn trace_ticket(settings: &Settings) -> Result<Option<HeaderValue>, Failure> {
    if settings.trace.is_empty() || settings.ticket.is_empty() {
        return Ok(None);
    }
    let ticket = HeaderValue::try_from(&settings.ticket);
    let ticket = ticket.map_err(|error| refused(format!("ZDNN_TICKET: {error}")))?;
    Ok(Some(ticket))
}

fn create_request(
    channel: &dyn Channel,
    settings: &Settings,
) -> Result<wire::CreateSessionRequest, Failure> {
    let mut session = options(settings);
    if let Some(text) = &settings.machine {
        session.machine_spec = Some(machine_spec(channel, text)?);
    }
    session.library_version = settings.library.clone().unwrap_or_default();
    session.trace.clone_from(&settings.trace);
    session.fault_rules = fault_rules(settings)?;
    session.sanitize = settings.sanitize;
    session.lease = settings.lease;
    Ok(wire::CreateSessionRequest {
        session: Some(session),
    })
}

/// A call that holds a session's lease: it ends with the process, or when this is dropped.
type Lease = Arc<Mutex<Answers>>;

/// Holds the lease of a session, if it has one.
fn hold(connection: &Connection, session: &wire::Session) -> Result<Option<Lease>, Failure> {
    if !session.lease {
        return Ok(None);
    }
    let request = wire::HoldSessionRequest {
        name: session.name.clone(),
    };
    let answers = connection.open("HoldSession", &Frame::of(&request)?)?;
    Ok(Some(Arc::new(Mutex::new(answers))))
}

impl Session {
    /// Creates a session with the options of the environment.
    pub fn create(connection: &Arc<Connection>, settings: &Settings) -> Result<Self, Failure> {
        let shortcuts = settings.shortcuts().map_err(refused)?;
        let connection = Arc::new(connection.with_ticket(trace_ticket(settings)?));
        let request = Frame::of(&create_request(&*connection, settings)?)?;
        let create = || connection.create("CreateSession", &request);
        let (answer, ticket) = waiting::for_a_place(settings, &create)?;
        let session: wire::Session = decoded(answer)?;
        let connection = Arc::new(connection.with_ticket(ticket));
        sanitizer::enable(session.sanitize);
        if settings.sanitize && !session.sanitize {
            diagnostics::explain(
                "ZDNN_SANITIZE",
                "1: this server cannot sanitize, calls are not checked",
            );
        }
        let lease = hold(&connection, &session)?;
        let limits = session.limits.unwrap_or_default();
        let socket = plain_socket(&settings.endpoint, &session);
        let stream = shortcuts::stream(&shortcuts, &connection, socket.clone(), max_idle(&limits));
        let stream = stream.map(Arc::new);
        let server = session_channel(&connection, stream.as_ref(), &session);
        let plain_socket = session.plain_socket.as_ref();
        let takes_memory = plain_socket.is_some_and(|socket| socket.takes_memory);
        let memory = socket.filter(|_| takes_memory).and_then(|path| {
            shortcuts::memory(&shortcuts, &connection, &path, &server, stream.as_deref())
        });
        Ok(Self {
            server,
            query: Query::of(session.machine.as_ref()),
            cache: shortcuts::cache(&shortcuts, &limits).map(Arc::new),
            memory: memory.map(Arc::new),
            has_faults: !session.fault_rules.is_empty(),
            prechecks: session.precheck,
            _lease: lease,
            stream,
            settings: settings.clone(),
        })
    }

    /// Returns whether a failure says that the session is gone: its server does not know it, or
    /// cannot be reached by the ticket that a proxy gave.
    pub fn is_lost_by(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Refused { reason, .. } => reason == "SESSION_NOT_FOUND",
            Failure::Lost(_) => self.server.connection.ticket().is_some(),
            Failure::Unreachable(_) => false,
        }
    }

    /// Returns whether the session still fits the settings.
    pub fn suits(&self, settings: &Settings) -> bool {
        self.is_at(&settings.endpoint)
            && self.settings.library == settings.library
            && self.settings.shortcuts() == settings.shortcuts()
    }

    /// Returns whether the settings name this session's server.
    pub fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.settings.endpoint == *endpoint
    }

    /// Applies zdnn_init to the open session: sets the options, and queries the machine again.
    /// Without NNPA there is nothing to query, and the last result stays.
    pub fn initialized(&self, settings: &Settings) -> Result<Self, Failure> {
        let channel = &*self.server.channel;
        let mut session = options(settings);
        session.name.clone_from(&self.server.name);
        let mut paths: Vec<String> = OPTIONS.map(str::to_owned).into();
        if let Some(text) = &settings.machine {
            session.machine_spec = Some(machine_spec(channel, text)?);
            paths.push("machine_spec".to_owned());
        }
        if settings.faults.is_some() || self.has_faults {
            session.fault_rules = fault_rules(settings)?;
            paths.push("fault_rules".to_owned());
        }
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = wire::UpdateSessionRequest {
            session: Some(session),
            update_mask,
        };
        let updated: wire::Session = unary(channel, "UpdateSession", &request)?;
        self.server.execute(wire::Operation {
            operation: Some(Arm::Init(wire::Init {})),
            ..wire::Operation::default()
        })?;
        let machine = updated.machine.as_ref();
        let has_nnpa = machine.is_some_and(|machine| machine.nnpa_installed);
        let mut session = self.updated(&updated);
        if !has_nnpa {
            session.query = self.query.clone();
        }
        Ok(session)
    }

    /// Takes over the server's view of the session, after the library has queried the machine.
    pub fn requeried(&self) -> Result<Self, Failure> {
        let request = wire::GetSessionRequest {
            name: self.server.name.clone(),
        };
        let session = unary(&*self.server.channel, "GetSession", &request)?;
        Ok(self.updated(&session))
    }

    fn updated(&self, session: &wire::Session) -> Self {
        Self {
            server: session_channel(&self.server.connection, self.stream.as_ref(), session),
            query: Query::of(session.machine.as_ref()),
            has_faults: !session.fault_rules.is_empty(),
            prechecks: session.precheck,
            ..self.clone()
        }
    }

    /// Returns the same session for calls that send all sticks; empties the cache's mirror.
    pub fn without_cache(&self) -> Self {
        if let Some(cache) = &self.cache {
            cache.clear();
        }
        Self {
            cache: None,
            ..self.clone()
        }
    }

    /// Deletes the session; waits for the server at most `END_TIMEOUT`.
    pub fn end(&self) {
        let request = wire::DeleteSessionRequest {
            name: self.server.name.clone(),
        };
        if let Ok(request) = Frame::of(&request) {
            let deadline = Instant::now() + END_TIMEOUT;
            let channel = self.server.channel.as_ref();
            channel.close("DeleteSession", &request, deadline);
        }
    }
}

/// Returns the channels of a session: its stream, if it has one, else the connection. A fault ends
/// the call that it meets, so that with fault rules each operation is a call of its own.
fn session_channel(
    connection: &Arc<Connection>,
    stream: Option<&Arc<StreamChannel>>,
    session: &wire::Session,
) -> SessionChannel {
    let plain: Arc<dyn Channel> = connection.clone();
    let channel = match stream {
        Some(stream) => stream.clone(),
        None => plain.clone(),
    };
    let has_faults = !session.fault_rules.is_empty();
    SessionChannel {
        name: session.name.clone(),
        limits: session.limits.unwrap_or_default(),
        connection: Arc::clone(connection),
        operations: if has_faults { plain } else { channel.clone() },
        channel,
    }
}
