//! What a server has done.

use crate::serve::send_strategy::bulk_method::BulkStats;

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTotals {
    /// Requests that were answered, by any status.
    pub requests: u64,
    /// Bytes that were sent, heads included.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// By which calls larger files went, if they were chosen.
    pub bulk: BulkStats,
}

impl std::ops::Add for ServerTotals {
    type Output = Self;

    fn add(mut self, mut other: Self) -> Self {
        self.words().zip(other.words()).for_each(|(sum, more)| *sum += *more);
        self
    }
}

impl ServerTotals {
    /// Numbers that it consists of.
    pub(crate) const WORDS: usize = 4 + BulkStats::WORDS;

    pub(crate) fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self { requests, bytes, connections, refused, bulk } = self;
        [requests, bytes, connections, refused].into_iter().chain(&mut bulk.0)
    }
}
