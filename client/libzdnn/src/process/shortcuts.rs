// SPDX-License-Identifier: Apache-2.0
//! The shortcuts by name, and which of them ZDNN_PLAIN and ZDNN_TRANSFER switch off.

/// A mechanism that makes calls faster and changes no result. `call/shortcuts.rs` shows what it
/// wraps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shortcut {
    /// Operations go over one ExecuteStream instead of a call each.
    Stream,
    /// That stream is opened on the server's plain socket instead of HTTP/2.
    PlainSocket,
    /// Sticks that the server has are named instead of sent.
    ContentCache,
    /// Sticks and arrays pass in memory that the server maps.
    SharedMemory,
}

/// Every name that ZDNN_PLAIN takes in any client; None for a shortcut that this library lacks.
const NAMES: [(&str, Option<Shortcut>); 5] = [
    ("stream", Some(Shortcut::Stream)),
    ("plain-socket", Some(Shortcut::PlainSocket)),
    ("out-of-band-arrays", None),
    ("content-cache", Some(Shortcut::ContentCache)),
    ("shared-memory", Some(Shortcut::SharedMemory)),
];

/// How sticks get to the server: ZDNN_TRANSFER.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Transfer {
    /// All of them, at every call.
    Sticks,
    /// Once; then by name.
    Cache,
    /// As with the cache; sticks that would travel pass in shared memory, if the server shares it.
    #[default]
    Shared,
}

impl Transfer {
    /// Parses ZDNN_TRANSFER.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "sticks" => Some(Self::Sticks),
            "cache" => Some(Self::Cache),
            "shm" => Some(Self::Shared),
            _ => None,
        }
    }

    fn allows(self, shortcut: Shortcut) -> bool {
        match shortcut {
            Shortcut::Stream | Shortcut::PlainSocket => true,
            Shortcut::ContentCache => self != Self::Sticks,
            Shortcut::SharedMemory => self == Self::Shared,
        }
    }
}

/// The shortcuts in use.
#[derive(Clone, PartialEq, Eq)]
pub struct Shortcuts(Vec<Shortcut>);

impl Shortcuts {
    /// Returns the shortcuts that a transfer allows, without the removed ones.
    pub fn new(transfer: Transfer, removed: &[Shortcut]) -> Self {
        let every = NAMES.into_iter().filter_map(|(_, shortcut)| shortcut);
        let used =
            every.filter(|shortcut| transfer.allows(*shortcut) && !removed.contains(shortcut));
        Self(used.collect())
    }

    /// Returns whether a shortcut is in use.
    pub fn has(&self, shortcut: Shortcut) -> bool {
        self.0.contains(&shortcut)
    }
}

/// Parses ZDNN_PLAIN: `1` switches off every shortcut, names those, `0` or an empty text none.
pub fn parse_plain(text: &str) -> Result<Vec<Shortcut>, String> {
    let names = text.split(',').map(str::trim);
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let removed = match names[..] {
        ["0"] => Vec::new(),
        ["1"] => NAMES.map(|(_, shortcut)| shortcut).into(),
        _ => names
            .into_iter()
            .map(parse_name)
            .collect::<Result<_, _>>()?,
    };
    Ok(removed.into_iter().flatten().collect())
}

fn parse_name(text: &str) -> Result<Option<Shortcut>, String> {
    let pair = NAMES.iter().find(|(name, _)| *name == text);
    let names = NAMES.map(|(name, _)| name).join(", ");
    let refusal = || format!("ZDNN_PLAIN: {text}: unknown, must be 1 or some of {names}");
    pair.map(|(_, shortcut)| *shortcut).ok_or_else(refusal)
}
