//! What hindered requests at saturation without being a resource that is full: the signs of it, and which of them cast doubt on a
//! verdict.

use kelvin_core::catalogue::load::hosts::*;

use super::*;

/// A sign: the figure of a visit that shows it, from where on it matters, and of which limit it is the way to act.
struct HindranceSign {
    hindrance: Disturbance,
    host: LoadHost,
    metric: &'static Metric,
    threshold: f64,
    acts_for: Option<ResourceGroup>,
    /// Whether the verdict may be wrong because of it even where a resource is full: users were missing.
    is_grave: bool,
    /// Why a verdict is not certain, where it makes it so.
    doubt: &'static str,
}

const fn sign(
    hindrance: Disturbance,
    host: LoadHost,
    metric: &'static Metric,
    threshold: f64,
    doubt: &'static str,
) -> HindranceSign {
    HindranceSign { hindrance, host, metric, threshold, acts_for: None, is_grave: false, doubt }
}

impl HindranceSign {
    const fn acting_for(self, group: ResourceGroup) -> Self {
        Self { acts_for: Some(group), ..self }
    }

    const fn grave(self) -> Self {
        Self { is_grave: true, ..self }
    }
}

/// A mean of one connection a visit is one user who came a second late. Of CPU time and of periods a twentieth is the precision of
/// the knee. Where one segment in a hundred is lost, a flow has about 12 of them in flight, with any windows (M. Mathis et al., "The
/// Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997). Without stalls of a tenth of the time others within 10 % of the
/// limit would be the limit.
static HINDRANCE_SIGNS: [HindranceSign; 9] = [
    sign(Disturbance::AcceptQueue, LoadHost::Server, &LISTEN_OVERFLOWS, 1.0, "connections found the accept queue full")
        .grave(),
    sign(Disturbance::Steal, LoadHost::Server, &CPU_STEAL, 0.05, "the hypervisor took CPU time from the server"),
    sign(Disturbance::Steal, LoadHost::Client, &CPU_STEAL, 0.05, "the hypervisor took CPU time from the client"),
    sign(Disturbance::Quota, LoadHost::Server, &CPU_THROTTLED, 0.05, "a CPU quota kept the server from running")
        .acting_for(ResourceGroup::ServerCpu),
    sign(Disturbance::Quota, LoadHost::Client, &CPU_THROTTLED, 0.05, "a CPU quota kept the client from running")
        .acting_for(ResourceGroup::Client),
    sign(
        Disturbance::Retransmissions,
        LoadHost::Server,
        &RETRANSMITTED_SEGMENTS,
        MIN_RETRANSMITTED_SHARE,
        "segments were retransmitted",
    )
    .acting_for(ResourceGroup::Link),
    sign(
        Disturbance::OffCpu,
        LoadHost::Server,
        &THREADS_WITHOUT_CPU,
        0.0,
        "threads of the server wait for CPUs that other work uses, or for a quota that cannot be seen",
    )
    .grave(),
    sign(
        Disturbance::OffCpu,
        LoadHost::Client,
        &THREADS_WITHOUT_CPU,
        0.0,
        "threads of the client wait for CPUs that other work uses",
    )
    .acting_for(ResourceGroup::Client),
    sign(Disturbance::Stalls, LoadHost::Server, &STALLED, STALLING, "no request was answered for a part of the time"),
];

/// Share of the time in stalls from which on they matter.
pub(super) const STALLING: f64 = 1.0 - BOTH_FULL_RATIO;

/// From where on segments that are sent again matter.
pub(super) const MIN_RETRANSMITTED_SHARE: f64 = 0.01;

/// Why a verdict is not certain, by what hindered which end.
pub(super) fn doubt_text(disturbance: Disturbance, of_server: bool) -> &'static str {
    let is_match =
        |sign: &&HindranceSign| sign.hindrance == disturbance && (sign.host == LoadHost::Server) == of_server;
    HINDRANCE_SIGNS.iter().find(is_match).map_or("something hindered it", |sign| sign.doubt)
}

/// A sign that was seen, and how strong.
pub(crate) struct ObservedHindrance {
    sign: &'static HindranceSign,
    amount: Estimate,
}

impl ObservedHindrance {
    /// Those of the visits at saturation.
    pub(crate) fn at_saturation(saturated: &SaturatedSweep<'_>) -> Vec<Self> {
        let observed = |sign: &'static HindranceSign| {
            let visit_amount = |visit: &LoadStep| match sign.hindrance {
                Disturbance::Stalls => visit.get(sign.metric),
                _ => visit.host_figure(sign.host, sign.metric),
            };
            let amount = mean_estimate(&saturated.values(visit_amount)).map(clamp_to_zero)?;
            (amount.value >= sign.threshold).then_some(Self { sign, amount })
        };
        // Threads wait for a CPU on any server that is busy: it is a sign only where its own work is not what they wait for.
        let is_possible = |sign: &&HindranceSign| match (sign.hindrance, sign.host) {
            (Disturbance::OffCpu, LoadHost::Server) => saturated.is_without_cpu(),
            (Disturbance::OffCpu, LoadHost::Client) => saturated.has_foreign_load(Resource::ClientCpu),
            _ => true,
        };
        HINDRANCE_SIGNS.iter().filter(is_possible).filter_map(observed).collect()
    }

    /// Whether it is how the limit of this verdict acts.
    fn is_how_it_limits(&self, verdict: &LoadVerdict) -> bool {
        let mut groups = verdict.resources().iter().map(|&word| resource(word).map(Resource::group));
        self.sign.acts_for.is_some() && groups.any(|group| group == self.sign.acts_for)
    }

    /// What it makes uncertain of a verdict: nothing where it is how the limit acts, or where the limit is certainly full all the same.
    pub(crate) fn doubt(&self, facts: &VerdictFacts<'_>, verdict: &LoadVerdict) -> Option<LoadDoubt> {
        let is_relevant = self.sign.is_grave || !facts.is_full() && !self.is_how_it_limits(verdict);
        is_relevant.then(|| LoadDoubt::Disturbed {
            disturbance: self.sign.hindrance,
            of_server: self.sign.host == LoadHost::Server,
        })
    }

    /// The claim that it hinders, certain where all of its interval is above what matters.
    ///
    /// `the hypervisor takes at least 5.0 % of the CPU time of the host of the server: 12 % (11 % to 13 %)`.
    pub(crate) fn conclusion(&self, saturated: &SaturatedSweep<'_>, verdict: &LoadVerdict) -> LoadConclusion {
        let Self { sign: HindranceSign { hindrance, host, threshold, .. }, amount } = self;
        let of_server = *host == LoadHost::Server;
        let is_how_it_limits = self.is_how_it_limits(verdict);
        let process = if of_server { "server" } else { "load generator" };
        let action = match hindrance {
            Disturbance::Quota if is_how_it_limits => ", which is how it limits",
            Disturbance::Retransmissions if is_how_it_limits => ", as a full link makes it",
            _ => "",
        };
        let share = span_text(&Estimate { high: amount.high.min(1.0), ..*amount }, percent);
        let count = span_text(amount, number);
        let share_sentence = |share: &str| match hindrance {
            Disturbance::Steal => format!("the hypervisor takes {share} of the CPU time of the host of the {process}"),
            Disturbance::Quota => {
                format!("its CPU quota keeps the {process} from running in {share} of the quota's periods")
            }
            Disturbance::Retransmissions => format!("TCP retransmits {share} of the server's segments"),
            _ => format!("no request is answered for {share} of the time"),
        };
        let (text, line) = match hindrance {
            Disturbance::AcceptQueue => {
                let (value, span) = count.split_once(' ').unwrap_or_default();
                let overflows = "the accept queue of the server overflows";
                (
                    format!("{overflows} for a connection of each visit or more: {count}"),
                    format!(
                        "{overflows}: {value} connections of a visit {span} find it full, and are tried again a second or more later"
                    ),
                )
            }
            Disturbance::OffCpu => {
                let text = format!(
                    "threads of the {process} wait for a CPU, {count} on average: other work uses the CPUs of its host, or a quota that \
                     cannot be seen stops it"
                );
                (text.clone(), text)
            }
            _ => (
                format!("{}: {share}{action}", share_sentence(&format!("at least {}", percent(*threshold)))),
                format!("{}{action}", share_sentence(&share)),
            ),
        };
        let (fixed, disturbance) = (saturated.sweep.fixed.clone(), *hindrance);
        let claim = DisturbanceClaim { fixed, disturbance, of_server, amount: *amount, is_how_it_limits };
        let (holds, test) = ((amount.low >= *threshold).then_some(true), saturated.test());
        LoadConclusion::new(LoadClaim::Disturbance(claim), holds, test, text)
            .with_line(AnswerLine::Trouble, Some(format!("{}.", capitalise(&line))))
    }
}
