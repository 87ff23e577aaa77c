//! What hindered requests at saturation without being a resource that is full: the signs of it, and which of them cast doubt on a
//! verdict.

use kelvin_catalogue::load::hosts::{CPU_STEAL, CPU_THROTTLED, Host, LISTEN_OVERFLOWS, RETRANSMITTED, WITHOUT_CPU};
use kelvin_catalogue::load::{Device, Resource};
use kelvin_model::{
    Conclusion, Estimate, Hindrance, LoadClaim, LoadDoubt, LoadHindrance, LoadVerdict, Metric, Name, Test,
};

use super::of;
use super::used::{Saturated, estimate, not_negative};
use super::verdict::Facts;

/// A sign: the figure of a host that shows it, from where on it matters, and of which limit it is the way to act.
struct Sign {
    by: Hindrance,
    host: Host,
    metric: &'static Metric,
    least: f64,
    acts_for: Option<Device>,
    /// Whether the verdict may be wrong because of it even where a resource is full: users were missing.
    is_grave: bool,
}

/// A mean of one connection a visit is one user who came a second late. Of CPU time and of periods a twentieth is what the knee is told
/// to. Where one segment in a hundred is lost, a flow has about 12 of them in flight, whatever its windows (M. Mathis et al., "The
/// Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997).
static SIGNS: [Sign; 7] = [
    Sign {
        by: Hindrance::AcceptQueue,
        host: Host::Server,
        metric: &LISTEN_OVERFLOWS,
        least: 1.0,
        acts_for: None,
        is_grave: true,
    },
    Sign { by: Hindrance::Steal, host: Host::Server, metric: &CPU_STEAL, least: 0.05, acts_for: None, is_grave: false },
    Sign { by: Hindrance::Steal, host: Host::Client, metric: &CPU_STEAL, least: 0.05, acts_for: None, is_grave: false },
    Sign {
        by: Hindrance::Quota,
        host: Host::Server,
        metric: &CPU_THROTTLED,
        least: 0.05,
        acts_for: Some(Device::ServerCpu),
        is_grave: false,
    },
    Sign {
        by: Hindrance::Quota,
        host: Host::Client,
        metric: &CPU_THROTTLED,
        least: 0.05,
        acts_for: Some(Device::Client),
        is_grave: false,
    },
    Sign {
        by: Hindrance::Retransmissions,
        host: Host::Server,
        metric: &RETRANSMITTED,
        least: 0.01,
        acts_for: Some(Device::Link),
        is_grave: false,
    },
    Sign {
        by: Hindrance::WithoutCpu,
        host: Host::Server,
        metric: &WITHOUT_CPU,
        least: 0.0,
        acts_for: None,
        is_grave: true,
    },
];

/// From where on the sign of a hindrance matters.
pub(crate) fn least(by: Hindrance, of_server: bool) -> Option<f64> {
    SIGNS.iter().find(|sign| sign.by == by && (sign.host == Host::Server) == of_server).map(|sign| sign.least)
}

/// A sign that was seen, and how strong.
pub(crate) struct Seen {
    sign: &'static Sign,
    amount: Estimate,
}

impl Seen {
    /// Those of the visits at saturation.
    pub(crate) fn all(saturated: &Saturated<'_>) -> Vec<Self> {
        let seen = |sign: &'static Sign| {
            let values: Vec<f64> =
                saturated.visits().filter_map(|visit| visit.of_host(sign.host, sign.metric)).collect();
            let amount = estimate(&values).map(not_negative).filter(|amount| amount.value >= sign.least)?;
            Some(Self { sign, amount })
        };
        // Threads wait for a CPU on any server that is busy: it is a sign only where its own work is not what they wait for.
        let may_be = |sign: &&Sign| sign.by != Hindrance::WithoutCpu || saturated.is_without_cpu();
        SIGNS.iter().filter(may_be).filter_map(seen).collect()
    }

    /// Whether it is how the limit of this verdict acts.
    fn is_how_it_limits(&self, verdict: &LoadVerdict) -> bool {
        let of = |by: &Name| Resource::ALL.iter().find(|resource| *by == *resource.name()).map(|one| one.device());
        let named: Vec<Option<Device>> = match verdict {
            LoadVerdict::Resource { by } | LoadVerdict::Client { by } => vec![of(by)],
            LoadVerdict::Both { by } | LoadVerdict::OneOf { by } => by.iter().map(of).collect(),
            LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. } => Vec::new(),
        };
        self.sign.acts_for.is_some() && named.contains(&self.sign.acts_for)
    }

    /// What it makes uncertain of a verdict: nothing where it is how the limit acts, or where the limit is certainly full all the same.
    pub(crate) fn doubt(&self, facts: &Facts<'_>, verdict: &LoadVerdict) -> Option<LoadDoubt> {
        let is_full = facts.is_full();
        let matters = self.sign.is_grave || !is_full && !self.is_how_it_limits(verdict);
        matters.then(|| LoadDoubt::Hindered { by: self.sign.by, of_server: self.sign.host == Host::Server })
    }

    /// The claim that it hinders, certain where all of its interval is above what matters.
    pub(crate) fn conclusion(&self, saturated: &Saturated<'_>, verdict: &LoadVerdict) -> Conclusion {
        let Self { sign, amount } = self;
        let claim = LoadHindrance {
            held: saturated.sweep.held.clone(),
            by: sign.by,
            of_server: sign.host == Host::Server,
            amount: *amount,
            is_how_it_limits: self.is_how_it_limits(verdict),
        };
        let evidence = Test::Saturated { visits: saturated.visits().count() };
        of(LoadClaim::Hindrance(claim), (amount.low >= sign.least).then_some(true), evidence)
    }
}
