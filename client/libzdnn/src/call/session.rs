// SPDX-License-Identifier: Apache-2.0
//! A session of the server: a guest on a machine, with this process's options.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prost::Message;

use crate::abi::machine::Query;
use crate::call::faults;
use crate::call::sanitizer;
use crate::process::diagnostics;
use crate::process::environment::{Place, Settings, Transfer};
use crate::rpc::connection::Link;
use crate::rpc::failure::Failure;
use crate::rpc::stream::Conversation;
use crate::transfer::content_cache::Contents;
use crate::transfer::shared_memory::Shared;
use crate::wire::{self, operation::Operation as Arm};

/// How long the end of a session waits for a server.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// Fields that zdnn_init may change.
const OPTIONS: [&str; 5] = [
    "precheck",
    "status_diag",
    "program_check_action",
    "log_level",
    "log_module",
];

/// An open session. Renewed as a whole; holds nothing that cannot be sent again.
#[derive(Clone)]
pub struct Session {
    pub link: Arc<Link>,
    pub place: Place,
    pub library: Option<String>,
    pub transfer: Transfer,
    pub name: String,
    pub limits: wire::SessionLimits,
    pub query: Query,
    /// What need not travel; none where sticks always do.
    pub contents: Option<Arc<Contents>>,
    /// What passes beside the wire; none with a server elsewhere, or one that does not share.
    pub shared: Option<Arc<Shared>>,
    /// What operations go over, unless faults are injected.
    pub conversation: Arc<Conversation>,
    /// Whether the server injects faults: those end the calls that they meet, so that each operation
    /// is one, and local functions that can fail ask the server.
    pub has_faults: bool,
}

fn options(settings: &Settings) -> wire::Session {
    let action = if settings.program_check_status {
        wire::ProgramCheckAction::Status
    } else {
        wire::ProgramCheckAction::Abort
    };
    wire::Session {
        precheck: settings.precheck,
        status_diag: settings.status_diag,
        program_check_action: action.into(),
        log_level: settings
            .log_level
            .unwrap_or(wire::LogLevel::Unspecified)
            .into(),
        log_module: settings.log_module.clone(),
        ..wire::Session::default()
    }
}

fn machine_spec(link: &Link, name: &str) -> Result<wire::MachineSpec, Failure> {
    let request = wire::GetMachineRequest {
        name: format!("machines/{name}"),
    };
    let machine: wire::Machine = link.unary("GetMachine", &request)?;
    Ok(wire::MachineSpec {
        model: machine.model,
        ..wire::MachineSpec::default()
    })
}

impl Session {
    /// Creates a session with the options of the environment.
    pub fn create(link: &Arc<Link>, settings: &Settings) -> Result<Self, Failure> {
        let mut wanted = options(settings);
        if let Some(name) = &settings.machine {
            wanted.machine_spec = Some(machine_spec(link, name)?);
        }
        wanted.library_version = settings.library.clone().unwrap_or_default();
        wanted.trace.clone_from(&settings.trace);
        wanted.fault_rules = faults::wanted(settings)?;
        wanted.sanitize = settings.sanitize;
        let request = wire::CreateSessionRequest {
            session: Some(wanted),
        };
        let made: wire::Session = link.unary("CreateSession", &request)?;
        sanitizer::enable(made.sanitize);
        if settings.sanitize && !made.sanitize {
            diagnostics::explain("ZDNN_SANITIZE", "this server cannot");
        }
        let takes_memory = made
            .plain_socket
            .as_ref()
            .is_some_and(|one| one.takes_memory);
        let mut session = Self::opened(link, settings, made, None);
        if takes_memory {
            session.share();
        }
        Ok(session)
    }

    /// Has the server map memory of this process, if both can.
    fn share(&mut self) {
        if self.transfer != Transfer::Shared || cfg!(target_endian = "big") {
            return;
        }
        let nothing = wire::ExecuteRequest {
            session: self.name.clone(),
            operations: Vec::new(),
        };
        let shared = Shared::create(self.limits.max_bytes);
        let file = shared.as_ref().map(Shared::descriptor);
        let taken = file.is_some_and(|file| self.conversation.bring(&self.link, file, &nothing));
        self.shared = shared.filter(|_| taken).map(Arc::new);
    }

    /// Takes over what the server tells of a session, and from `before` what it has cached.
    fn opened(
        link: &Arc<Link>,
        settings: &Settings,
        told: wire::Session,
        before: Option<&Self>,
    ) -> Self {
        let limits = told.limits.unwrap_or_default();
        let known = before.and_then(|one| one.contents.clone());
        let contents = match settings.transfer {
            Transfer::Sticks => None,
            Transfer::Cache | Transfer::Shared => {
                known.or_else(|| Contents::of(limits.max_cache_bytes).map(Arc::new))
            }
        };
        let has_faults = !told.fault_rules.is_empty();
        let socket = settings.place.target.strip_prefix("unix:");
        let beside = told.plain_socket.filter(|one| !one.suffix.contains('/'));
        let plain = socket.zip(beside);
        let plain = plain.map(|(path, one)| format!("{path}{}", one.suffix).into());
        let idle_timeout = limits.idle_timeout.and_then(|one| one.try_into().ok());
        let most_idle = idle_timeout.map_or(Duration::MAX, |one: Duration| one / 2);
        let spoken = before.map(|one| Arc::clone(&one.conversation));
        Self {
            link: Arc::clone(link),
            place: settings.place.clone(),
            library: settings.library.clone(),
            transfer: settings.transfer,
            name: told.name,
            query: Query::of(told.machine.as_ref()),
            limits,
            contents,
            shared: match settings.transfer {
                Transfer::Shared => before.and_then(|one| one.shared.clone()),
                _ => None,
            },
            conversation: spoken.unwrap_or_else(|| Arc::new(Conversation::on(plain, most_idle))),
            has_faults,
        }
    }

    /// Does what zdnn_init does to a running guest: new options, and the machine queried
    /// anew; without NNPA there is nothing to query, and the library keeps what it knew.
    pub fn initialized(&self, settings: &Settings) -> Result<Self, Failure> {
        let mut session = options(settings);
        session.name.clone_from(&self.name);
        let mut paths: Vec<String> = OPTIONS.map(str::to_owned).into();
        if let Some(name) = &settings.machine {
            session.machine_spec = Some(machine_spec(&self.link, name)?);
            paths.push("machine_spec".to_owned());
        }
        if settings.faults.is_some() || self.has_faults {
            session.fault_rules = faults::wanted(settings)?;
            paths.push("fault_rules".to_owned());
        }
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = wire::UpdateSessionRequest {
            session: Some(session),
            update_mask,
        };
        let told: wire::Session = self.link.unary("UpdateSession", &request)?;
        self.execute(wire::Operation {
            operation: Some(Arm::Init(wire::Init {})),
            ..wire::Operation::default()
        })?;
        let has_nnpa = told
            .machine
            .as_ref()
            .is_some_and(|machine| machine.nnpa_installed);
        let mut session = Self::opened(&self.link, settings, told, Some(self));
        if !has_nnpa {
            session.query = self.query.clone();
        }
        Ok(session)
    }

    /// Takes over the server's view of the session, after the library has queried the machine.
    pub fn requeried(&self, settings: &Settings) -> Result<Self, Failure> {
        let request = wire::GetSessionRequest {
            name: self.name.clone(),
        };
        let told = self.link.unary("GetSession", &request)?;
        Ok(Self::opened(&self.link, settings, told, Some(self)))
    }

    /// Returns the same session for calls that send all sticks; forgets what the cache had.
    pub fn without_cache(&self) -> Self {
        if let Some(contents) = &self.contents {
            contents.clear();
        }
        Self {
            contents: None,
            ..self.clone()
        }
    }

    /// Tells the server that the session is over; nobody waits longer than `PATIENCE` for it.
    pub fn end(&self) {
        let request = wire::DeleteSessionRequest {
            name: self.name.clone(),
        };
        let deadline = Instant::now() + PATIENCE;
        let conversation = &self.conversation;
        self.link
            .farewell(conversation, "DeleteSession", &request, deadline);
    }

    /// Makes one call.
    pub fn unary<R: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<R, Failure> {
        self.link.unary(method, message)
    }

    /// Runs one operation.
    pub fn execute(&self, operation: wire::Operation) -> Result<wire::OperationResult, Failure> {
        let missing = || Failure::Lost("the answer has no result".to_owned());
        let results = self.execute_all(vec![operation])?;
        results.into_iter().next().ok_or_else(missing)
    }

    /// Runs operations in order, as far as they succeed.
    pub fn execute_all(
        &self,
        operations: Vec<wire::Operation>,
    ) -> Result<Vec<wire::OperationResult>, Failure> {
        let session = self.name.clone();
        let request = wire::ExecuteRequest {
            session,
            operations,
        };
        let answer: Result<wire::ExecuteResponse, Failure> = match self.has_faults {
            true => self.link.unary("Execute", &request),
            false => self.link.conversed(&self.conversation, "Execute", &request),
        };
        if let (Err(Failure::Lost(_)), Some(shared)) = (&answer, &self.shared) {
            shared.give_up();
        }
        Ok(answer?.results)
    }
}

/// Returns an id that no tensor of this process has had.
pub fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
