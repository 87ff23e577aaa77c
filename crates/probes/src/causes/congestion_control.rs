//! Congestion control: some pace what they send by a model of the path, which a path within one machine does not fit.

use kelvin_core::SkipReason;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM};
use kelvin_sys::net::congestion_controls;

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, small_datagram};
use crate::reasons::OrReason;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_all_cases(&[&BANDWIDTH_TCP, &BANDWIDTH_TCP_METHOD, &BANDWIDTH_TCP_SYSTEM])]),
    mechanisms: &[Mechanism::without("other_congestion_control", "with another congestion control", apply)],
    negative_control: small_datagram,
    ..Cause::new("congestion_control", "congestion control", include_str!("congestion_control.md"))
};

/// Those that every user may choose where the kernel has them, and of which the streams of kelvin take the first: neither paces.
const UNPACED_ALGORITHMS: [&str; 2] = ["cubic", "reno"];

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let algorithms = congestion_controls().or_refuse("cannot read what the kernel has")?;
    let has = |name: &str| algorithms.iter().any(|algorithm| algorithm == name);
    let is_system_metric = context.metric.id == BANDWIDTH_TCP_SYSTEM.id;
    let current = if is_system_metric {
        context.machine.kernel.congestion_control.get().map(String::as_str)
    } else {
        let default_algorithm = UNPACED_ALGORITHMS.into_iter().find(|name| has(name));
        context.setup.sockets.congestion_control.as_deref().or(default_algorithm)
    };
    let current = current.or_refuse("cannot read which congestion control the stream has")?;
    let alternative = UNPACED_ALGORITHMS.into_iter().find(|name| *name != current && has(name));
    let alternative =
        alternative.or_refuse(format!("needs another congestion control than {current} in the kernel"))?;
    conditions.setup.sockets.congestion_control = Some(alternative.to_owned());
    conditions.setup.sockets.override_system = is_system_metric;
    Ok(())
}
