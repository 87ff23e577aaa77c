//! What is found out at a receiver when all has come: what its stages cost apart, and what is not on its device yet.

use super::ReceiveSession;
use crate::rate_prediction::{self, StageCosts};
use crate::secure_channel::{PART_BYTES, TransferStream};

impl<S: TransferStream> ReceiveSession<'_, S> {
    /// What the receiver's stages cost apart; nothing where that cannot be found out.
    pub(super) fn measure_costs(&self) -> Option<StageCosts> {
        let setup = self.methods.setup();
        let at_once = setup.map_or(PART_BYTES, |setup| setup.buffer.min(PART_BYTES));
        let [_, receiver] = rate_prediction::stage_costs(&self.settings, at_once).ok()?;
        let by = setup.map(|setup| (setup, self.settings.verify));
        let (file, each) = self.policy.write_costs(self.moved.small, by).ok()?;
        // A method that receives into a file has done both.
        let connection = if by.is_some() && file > 0 { 0 } else { receiver.connection };
        Some(StageCosts { file, each, connection, ..receiver })
    }
}

/// At most so many of these bytes are not on their device yet: no more than the system has of such bytes.
pub(super) fn unwritten_bytes(moved: u64) -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |key: &str| {
        let line = known.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    Some(moved.min((kibibytes("Dirty:")? + kibibytes("Writeback:")?) << 10))
}
