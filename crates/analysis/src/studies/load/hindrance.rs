//! What hindered requests at saturation without being a resource that is full: the signs of it, and which of them cast doubt on a
//! verdict.

use kelvin_catalogue::load::hosts::{CPU_STEAL, CPU_THROTTLED, Host, LISTEN_OVERFLOWS, RETRANSMITTED, WITHOUT_CPU};
use kelvin_catalogue::load::{Device, Resource, STALLED};
use kelvin_model::{Conclusion, Estimate, Hindrance, LoadClaim, LoadDoubt, LoadHindrance, LoadVerdict, Name, Test};

use super::of;
use super::sweep::Visit;
use super::used::{Saturated, estimate, not_negative};
use super::verdict::{AS_FULL, Facts};

/// A sign: the figure of a visit that shows it, from where on it matters, and of which limit it is the way to act.
struct Sign {
    by: Hindrance,
    host: Host,
    of: fn(&Visit, Host) -> Option<f64>,
    least: f64,
    acts_for: Option<Device>,
    /// Whether the verdict may be wrong because of it even where a resource is full: users were missing.
    is_grave: bool,
}

const fn sign(by: Hindrance, host: Host, of: fn(&Visit, Host) -> Option<f64>, least: f64) -> Sign {
    Sign { by, host, of, least, acts_for: None, is_grave: false }
}

/// A mean of one connection a visit is one user who came a second late. Of CPU time and of periods a twentieth is what the knee is told
/// to. Where one segment in a hundred is lost, a flow has about 12 of them in flight, whatever its windows (M. Mathis et al., "The
/// Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997). Without stalls of a tenth of the time others within 10 % of the
/// limit would be the limit.
static SIGNS: [Sign; 9] = [
    Sign { is_grave: true, ..sign(Hindrance::AcceptQueue, Host::Server, overflows, 1.0) },
    sign(Hindrance::Steal, Host::Server, steal, 0.05),
    sign(Hindrance::Steal, Host::Client, steal, 0.05),
    Sign { acts_for: Some(Device::ServerCpu), ..sign(Hindrance::Quota, Host::Server, throttled, 0.05) },
    Sign { acts_for: Some(Device::Client), ..sign(Hindrance::Quota, Host::Client, throttled, 0.05) },
    Sign { acts_for: Some(Device::Link), ..sign(Hindrance::Retransmissions, Host::Server, retransmitted, 0.01) },
    Sign { is_grave: true, ..sign(Hindrance::WithoutCpu, Host::Server, without_cpu, 0.0) },
    Sign { acts_for: Some(Device::Client), ..sign(Hindrance::WithoutCpu, Host::Client, without_cpu, 0.0) },
    sign(Hindrance::Stalls, Host::Server, stalled, STALLING),
];

/// Share of the time in stalls from which on they matter.
pub(super) const STALLING: f64 = 1.0 - AS_FULL;

fn overflows(visit: &Visit, host: Host) -> Option<f64> {
    visit.of_host(host, &LISTEN_OVERFLOWS)
}

fn steal(visit: &Visit, host: Host) -> Option<f64> {
    visit.of_host(host, &CPU_STEAL)
}

fn throttled(visit: &Visit, host: Host) -> Option<f64> {
    visit.of_host(host, &CPU_THROTTLED)
}

fn retransmitted(visit: &Visit, host: Host) -> Option<f64> {
    visit.of_host(host, &RETRANSMITTED)
}

fn without_cpu(visit: &Visit, host: Host) -> Option<f64> {
    visit.of_host(host, &WITHOUT_CPU)
}

fn stalled(visit: &Visit, _: Host) -> Option<f64> {
    visit.get(&STALLED)
}

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
            let values: Vec<f64> = saturated.visits().filter_map(|visit| (sign.of)(visit, sign.host)).collect();
            let amount = estimate(&values).map(not_negative).filter(|amount| amount.value >= sign.least)?;
            Some(Self { sign, amount })
        };
        // Threads wait for a CPU on any server that is busy: it is a sign only where its own work is not what they wait for.
        let may_be = |sign: &&Sign| match (sign.by, sign.host) {
            (Hindrance::WithoutCpu, Host::Server) => saturated.is_without_cpu(),
            (Hindrance::WithoutCpu, Host::Client) => saturated.others_have_cpus_of(Resource::ClientCpu),
            _ => true,
        };
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
