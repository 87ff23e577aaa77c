//! What hindered requests at saturation without being a resource that is full: the signs of it, and which of them cast doubt on a
//! verdict.

use kelvin_core::catalogue::load::hosts::{
    CPU_STEAL, CPU_THROTTLED, LISTEN_OVERFLOWS, LoadHost, RETRANSMITTED_SEGMENTS, THREADS_WITHOUT_CPU,
};
use kelvin_core::catalogue::load::{Resource, ResourceGroup, STALLED};
use kelvin_core::{
    Conclusion, Estimate, Hindrance, HindranceClaim, LoadClaim, LoadDoubt, LoadVerdict, Name, TestEvidence,
};

use super::new_conclusion;
use super::saturated_sweep::{SaturatedSweep, clamp_to_zero, mean_estimate};
use super::sweep::LoadStep;
use super::verdict::{BOTH_FULL_RATIO, VerdictFacts};

/// A sign: the figure of a visit that shows it, from where on it matters, and of which limit it is the way to act.
struct HindranceSign {
    hindrance: Hindrance,
    host: LoadHost,
    of: fn(&LoadStep, LoadHost) -> Option<f64>,
    threshold: f64,
    acts_for: Option<ResourceGroup>,
    /// Whether the verdict may be wrong because of it even where a resource is full: users were missing.
    is_grave: bool,
}

const fn sign(by: Hindrance, host: LoadHost, of: fn(&LoadStep, LoadHost) -> Option<f64>, least: f64) -> HindranceSign {
    HindranceSign { hindrance: by, host, of, threshold: least, acts_for: None, is_grave: false }
}

/// A mean of one connection a visit is one user who came a second late. Of CPU time and of periods a twentieth is what the knee is told
/// to. Where one segment in a hundred is lost, a flow has about 12 of them in flight, whatever its windows (M. Mathis et al., "The
/// Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997). Without stalls of a tenth of the time others within 10 % of the
/// limit would be the limit.
static HINDRANCE_SIGNS: [HindranceSign; 9] = [
    HindranceSign { is_grave: true, ..sign(Hindrance::AcceptQueue, LoadHost::Server, overflows, 1.0) },
    sign(Hindrance::Steal, LoadHost::Server, steal, 0.05),
    sign(Hindrance::Steal, LoadHost::Client, steal, 0.05),
    HindranceSign {
        acts_for: Some(ResourceGroup::ServerCpu),
        ..sign(Hindrance::Quota, LoadHost::Server, throttled, 0.05)
    },
    HindranceSign {
        acts_for: Some(ResourceGroup::Client),
        ..sign(Hindrance::Quota, LoadHost::Client, throttled, 0.05)
    },
    HindranceSign {
        acts_for: Some(ResourceGroup::Link),
        ..sign(Hindrance::Retransmissions, LoadHost::Server, retransmitted, 0.01)
    },
    HindranceSign { is_grave: true, ..sign(Hindrance::WithoutCpu, LoadHost::Server, without_cpu, 0.0) },
    HindranceSign {
        acts_for: Some(ResourceGroup::Client),
        ..sign(Hindrance::WithoutCpu, LoadHost::Client, without_cpu, 0.0)
    },
    sign(Hindrance::Stalls, LoadHost::Server, stalled, STALLING),
];

/// Share of the time in stalls from which on they matter.
pub(super) const STALLING: f64 = 1.0 - BOTH_FULL_RATIO;

fn overflows(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    visit.host_figure(host, &LISTEN_OVERFLOWS)
}

fn steal(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    visit.host_figure(host, &CPU_STEAL)
}

fn throttled(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    visit.host_figure(host, &CPU_THROTTLED)
}

fn retransmitted(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    visit.host_figure(host, &RETRANSMITTED_SEGMENTS)
}

fn without_cpu(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    visit.host_figure(host, &THREADS_WITHOUT_CPU)
}

fn stalled(visit: &LoadStep, _: LoadHost) -> Option<f64> {
    visit.get(&STALLED)
}

/// From where on the sign of a hindrance matters.
pub(crate) fn hindrance_threshold(by: Hindrance, of_server: bool) -> Option<f64> {
    HINDRANCE_SIGNS
        .iter()
        .find(|sign| sign.hindrance == by && (sign.host == LoadHost::Server) == of_server)
        .map(|sign| sign.threshold)
}

/// A sign that was seen, and how strong.
pub(crate) struct ObservedHindrance {
    sign: &'static HindranceSign,
    amount: Estimate,
}

impl ObservedHindrance {
    /// Those of the visits at saturation.
    pub(crate) fn at_saturation(saturated: &SaturatedSweep<'_>) -> Vec<Self> {
        let seen = |sign: &'static HindranceSign| {
            let values: Vec<f64> = saturated.steps().filter_map(|visit| (sign.of)(visit, sign.host)).collect();
            let amount = mean_estimate(&values).map(clamp_to_zero).filter(|amount| amount.value >= sign.threshold)?;
            Some(Self { sign, amount })
        };
        // Threads wait for a CPU on any server that is busy: it is a sign only where its own work is not what they wait for.
        let may_be = |sign: &&HindranceSign| match (sign.hindrance, sign.host) {
            (Hindrance::WithoutCpu, LoadHost::Server) => saturated.is_without_cpu(),
            (Hindrance::WithoutCpu, LoadHost::Client) => saturated.others_have_cpus_of(Resource::ClientCpu),
            _ => true,
        };
        HINDRANCE_SIGNS.iter().filter(may_be).filter_map(seen).collect()
    }

    /// Whether it is how the limit of this verdict acts.
    fn is_how_it_limits(&self, verdict: &LoadVerdict) -> bool {
        let of = |by: &Name| Resource::ALL.iter().find(|resource| *by == *resource.name()).map(|one| one.group());
        let named: Vec<Option<ResourceGroup>> = match verdict {
            LoadVerdict::Resource { by } | LoadVerdict::Client { by } => vec![of(by)],
            LoadVerdict::Both { by } | LoadVerdict::OneOf { by } => by.iter().map(of).collect(),
            LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. } => Vec::new(),
        };
        self.sign.acts_for.is_some() && named.contains(&self.sign.acts_for)
    }

    /// What it makes uncertain of a verdict: nothing where it is how the limit acts, or where the limit is certainly full all the same.
    pub(crate) fn doubt(&self, facts: &VerdictFacts<'_>, verdict: &LoadVerdict) -> Option<LoadDoubt> {
        let is_full = facts.is_full();
        let matters = self.sign.is_grave || !is_full && !self.is_how_it_limits(verdict);
        matters.then(|| LoadDoubt::Hindered { by: self.sign.hindrance, of_server: self.sign.host == LoadHost::Server })
    }

    /// The claim that it hinders, certain where all of its interval is above what matters.
    pub(crate) fn conclusion(&self, saturated: &SaturatedSweep<'_>, verdict: &LoadVerdict) -> Conclusion {
        let Self { sign, amount } = self;
        let claim = HindranceClaim {
            held: saturated.sweep.held.clone(),
            by: sign.hindrance,
            of_server: sign.host == LoadHost::Server,
            amount: *amount,
            is_how_it_limits: self.is_how_it_limits(verdict),
        };
        let evidence = TestEvidence::Saturated { visits: saturated.steps().count() };
        new_conclusion(LoadClaim::Hindrance(claim), (amount.low >= sign.threshold).then_some(true), evidence)
    }
}
