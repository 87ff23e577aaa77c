//! What is found out at a receiver when all has come: what its stages cost apart, and what is not on its device yet.

use super::Session;
use crate::channel::{PART, Stream};
use crate::expected::{self, Costs};

impl<S: Stream> Session<'_, S> {
    /// What the receiver's stages cost apart; nothing where that cannot be found out.
    pub(super) fn costs(&self) -> Option<Costs> {
        let setup = self.ways.setup();
        let at_once = setup.map_or(PART, |setup| setup.buffer.min(PART));
        let [_, receiver] = expected::stages(&self.settings, at_once).ok()?;
        let by = setup.map(|setup| (setup, self.settings.verify));
        let (file, each) = self.desk.costs(self.moved.small, by).ok()?;
        // A method that receives into a file has done both.
        let connection = if by.is_some() && file > 0 { 0 } else { receiver.connection };
        Some(Costs { file, each, connection, ..receiver })
    }
}

/// At most so many of these bytes are not on their device yet: no more than the system has of such bytes.
pub(super) fn unwritten(moved: u64) -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |key: &str| {
        let line = known.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    Some(moved.min((kibibytes("Dirty:")? + kibibytes("Writeback:")?) << 10))
}
