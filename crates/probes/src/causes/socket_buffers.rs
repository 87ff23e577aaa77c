//! Socket buffers: a sender that has filled them waits until the receiver has taken something out.

use kelvin_core::SkipReason;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_UNIX};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, small_datagram};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_all_cases(&[
        &BANDWIDTH_TCP,
        &BANDWIDTH_TCP_METHOD,
        &BANDWIDTH_TCP_SYSTEM,
        &BANDWIDTH_UNIX,
    ])]),
    mechanisms: &[Mechanism::without("other_buffers", "with other socket buffers", apply)],
    negative_control: small_datagram,
    ..Cause::new("socket_buffers", "small socket buffers", include_str!("socket_buffers.md"))
};

/// Enough for a path of 1 ms at 30 Gbit/s; one within a machine needs less.
const AMPLE_BUFFER_BYTES: u32 = 4 << 20;

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    conditions.setup.sockets.buffers = match context.setup.sockets.buffers {
        Some(_) => None,
        None => Some(AMPLE_BUFFER_BYTES),
    };
    conditions.setup.sockets.override_system = context.metric.id == BANDWIDTH_TCP_SYSTEM.id;
    Ok(())
}
