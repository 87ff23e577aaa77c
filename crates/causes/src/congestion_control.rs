//! Congestion control: some pace what they send by a model of the path, which a path within one machine does not fit.

use kelvin_catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_TCP_WAY, MESSAGE, STACK_UDP};
use kelvin_model::{Case, MetricAt, Reason};
use kelvin_sys::net::congestion_controls;

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

pub(crate) static CAUSE: Cause = Cause {
    id: "congestion_control",
    what: "congestion control",
    how: "The congestion control of a TCP connection decides how much may be in flight, and some (BBR) also how fast it is sent. Shown \
          by the same stream with another one, chosen for its two sockets alone: reno where the figure is by cubic, else cubic, or reno \
          where the kernel has no other.",
    cost: "Nothing of the system is changed: a socket has its own.",
    pitfalls: &[
        "The streams of net.bandwidth.tcp have cubic where the kernel grants it: ask of net.bandwidth.tcp.system for that which \
         programs here have by default (net.ipv4.tcp_congestion_control).",
        "What paces within a machine may be right on a long path.",
    ],
    helps: "choose another for local streams (TCP_CONGESTION, or net.ipv4.tcp_congestion_control for all)",
    touches: Touches::These(&[
        Touch::always(&BANDWIDTH_TCP),
        Touch::always(&BANDWIDTH_TCP_WAY),
        Touch::always(&BANDWIDTH_TCP_SYSTEM),
    ]),
    mechanisms: &[Mechanism::new(
        "with another congestion control",
        Means::Without(Control { id: "other_congestion_control", apply }),
    )],
    bystander: |_| MetricAt { metric: STACK_UDP.id, case: Case::new().with(MESSAGE, 64) },
    size: |_| None,
};

/// Those that every user may choose where the kernel has them, and of which the streams of kelvin take the first: neither paces.
const OTHERS: [&str; 2] = ["cubic", "reno"];

fn apply(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    let known =
        congestion_controls().map_err(|error| Reason::new(format!("cannot tell what the kernel has: {error}")))?;
    let has = |name: &str| known.iter().any(|one| one == name);
    let is_systems = scene.metric.id == BANDWIDTH_TCP_SYSTEM.id;
    let found = if is_systems {
        scene.machine.kernel.congestion_control.get().map(String::as_str)
    } else {
        let usual = OTHERS.into_iter().find(|name| has(name));
        scene.setup.sockets.congestion_control.as_deref().or(usual)
    };
    let found = found.ok_or_else(|| Reason::new("cannot tell which congestion control the stream has"))?;
    let other = OTHERS.into_iter().find(|name| *name != found && has(name));
    let other =
        other.ok_or_else(|| Reason::new(format!("needs another congestion control than {found} in the kernel")))?;
    conditions.setup.sockets.congestion_control = Some(other.to_owned());
    conditions.setup.sockets.over_system = is_systems;
    Ok(())
}
