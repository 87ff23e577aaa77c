//! Socket buffers: a sender that has filled them waits until the receiver has taken something out.

use kelvin_core::SkipReason;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_UNIX};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, small_datagram};

pub(crate) static CAUSE: Cause = Cause {
    id: "socket_buffers",
    what: "small socket buffers",
    how: "A stream has no more in flight than its buffers hold, and with small ones both ends wait for each other. Shown by the same \
          stream with buffers of another size: those that the kernel gives where a size was asked for, else 4 MiB at either end.",
    cost: "Memory of the kernel while a round runs; only the stream's own sockets have it.",
    pitfalls: &[
        "The kernel grants less where net.core.wmem_max or rmem_max is smaller, and says so in the notes of a run.",
    ],
    remedy: "leave buffers to the kernel, and raise the maxima of net.ipv4.tcp_wmem and tcp_rmem (of Unix sockets, which are not adjusted: \
            net.core.wmem_default)",
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&BANDWIDTH_TCP),
        at_all_cases(&BANDWIDTH_TCP_METHOD),
        at_all_cases(&BANDWIDTH_TCP_SYSTEM),
        at_all_cases(&BANDWIDTH_UNIX),
    ]),
    mechanisms: &[Mechanism::without("other_buffers", "with other socket buffers", apply)],
    negative_control: small_datagram,
    size: |_| None,
};

/// Enough for a path of 1 ms at 30 Gbit/s; one within a machine needs less.
const AMPLE_BUFFER_BYTES: u32 = 4 << 20;

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    conditions.setup.sockets.buffers = match scene.setup.sockets.buffers {
        Some(_) => None,
        None => Some(AMPLE_BUFFER_BYTES),
    };
    conditions.setup.sockets.override_system = scene.metric.id == BANDWIDTH_TCP_SYSTEM.id;
    Ok(())
}
