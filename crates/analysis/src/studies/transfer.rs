//! Transfers of files: whether mmap wins and at which end, what a connection, a reply, a larger call or another way to wait changes,
//! and what remains of the published findings.

use kelvin_core::catalogue::transfer::{
    BUFFER, COLD_TIME, CellSetting, ConnectionPolicy, EQUAL_CALL_SIZES, PUBLISHED_BUFFER, ReceiverMethod, ReplyPolicy,
    SenderMethod, TIME, TransferFiles, WaitMode, best_cell, cell, usual_mode,
};
use kelvin_core::{
    AxisWord, Claim, Conclusion, Estimate, FactorOverFiles, GainOverFiles, Metric, TestEvidence, TimeChange,
    TransferClaim, TransferFactor,
};
use kelvin_core::{Case, Name, Reference, ReferenceValue};

use super::crossing::without_axes;
use crate::evidence::{Evidence, RoundHeadlines, TestedFigure, outcome_of_p_value, p_value_of_all, p_value_of_any};
use crate::reference::references;
use crate::result::{StatedConclusion, Study};

pub(super) mod tables;

/// The study.
pub(super) const TRANSFER_STUDY: Name = Name::new("transfer");
/// The hazard of a directory for test files on tmpfs.
const SCRATCH_IN_MEMORY: &str = "scratch_in_memory";

/// Conclusions from the metrics `transfer.time` and `transfer.cold`.
pub(crate) fn transfer(evidence: &Evidence<'_>) -> Option<Study> {
    let in_memory = evidence.run.outline.hazards.iter().any(|hazard| hazard.id == *SCRATCH_IN_MEMORY);
    let cells = TransferCells { hot: evidence.all_cases(&TIME), cold: evidence.all_cases(&COLD_TIME), in_memory };
    let conclusions = mmap_conclusions(&cells)
        .into_iter()
        .chain(mmap_gain(&cells))
        .chain(end_effects(&cells))
        .chain(call_size_conclusions(&cells))
        .chain(connection_conclusions(&cells))
        .chain(other_factors(&cells))
        .chain(asynchronous_mode(&cells))
        .chain(cold_file_cost(&cells))
        .collect();
    Some(study(conclusions)).filter(|study| !study.conclusions.is_empty())
}

/// The study with these conclusions.
pub(super) fn study(conclusions: Vec<Conclusion>) -> Study {
    let design = "Files were sent from one process to another over loopback by several methods at either end, in several rounds of \
                  fresh processes, interleaved; each trial's bytes were compared. Three sets: 10 files of 2.4 kB, 1 file of 12 MB, \
                  2 files of 182 MB. One factor is changed at a time.";
    let conclusions = conclusions.into_iter().map(StatedConclusion::from).collect();
    Study {
        id: TRANSFER_STUDY,
        answers: Vec::new(),
        design: design.into(),
        conclusions,
        tables: Vec::new(),
        in_tables: Vec::new(),
    }
}

/// The rounds of all cells.
struct TransferCells<'r> {
    hot: Vec<RoundHeadlines<'r>>,
    cold: Vec<RoundHeadlines<'r>>,
    /// Whether they were written to a file system in memory.
    in_memory: bool,
}

impl<'r> TransferCells<'r> {
    fn rounds_at(&self, metric: &Metric, case: &Case) -> Option<&RoundHeadlines<'r>> {
        let all = if metric.id == COLD_TIME.id { &self.cold } else { &self.hot };
        all.iter().find(|rounds| is_same_cell(rounds.case, case) && rounds.are_positive())
    }
}

/// Whether two cells do the same: a buffer is of no use where both ends map.
fn is_same_cell(one: &Case, other: &Case) -> bool {
    let both_map = |case: &Case| {
        SenderMethod::of(case).is_some_and(SenderMethod::is_mapping)
            && ReceiverMethod::of(case).is_some_and(ReceiverMethod::is_mapping)
    };
    one == other || both_map(one) && without_axes(one, &[BUFFER]) == without_axes(other, &[BUFFER])
}

/// One factor: what is compared with what.
struct FactorComparison {
    factor: TransferFactor,
    base: Case,
    other: Case,
    /// The metric of the other side, where it is not the same.
    metric: &'static Metric,
}

impl FactorComparison {
    fn new(factor: TransferFactor, base: Case, other: Case) -> Self {
        Self { factor, base, other, metric: &TIME }
    }

    /// The best cell with another value of a factor.
    fn around_best(factor: TransferFactor, value: impl Into<AxisWord>) -> Self {
        Self::new(factor, best_cell(), best_cell().with_word(value))
    }

    /// The answer; `None` where no set was measured with both.
    fn conclude(&self, cells: &TransferCells<'_>) -> Option<Conclusion> {
        let sets = TransferFiles::ALL.iter().filter_map(|&files| self.over_files(cells, files));
        let (over, chances): (Vec<FactorOverFiles>, Vec<Option<f64>>) = sets.unzip();
        let wanted = if self.factor.is_gain() { TimeChange::Shorter } else { TimeChange::Longer };
        let changes = || over.iter().map(|one| one.change);
        let holds = match changes().any(|change| change == wanted) {
            true => Some(true),
            false => (!changes().any(|change| change == TimeChange::NotKnown)).then_some(false),
        };
        let rounds = over.iter().flat_map(|one| one.sides.iter().map(|side| side.rounds)).min()?;
        // One set that shows it is found among so many, while all are needed to refute it.
        let showing = over.iter().zip(&chances).filter(|(one, _)| one.change == wanted).map(|(_, chance)| *chance);
        let chance = match holds {
            Some(true) => p_value_of_any(showing, over.len()),
            _ => p_value_of_all(chances.iter().copied()),
        };
        Some(Conclusion {
            evidence: TestEvidence::Ratios { count: over.len(), rounds },
            claim: Claim::Transfer(TransferClaim::Factor {
                factor: self.factor,
                base: self.base.clone(),
                other: self.other.clone(),
                over,
                in_memory: cells.in_memory,
            }),
            holds,
            tested: outcome_of_p_value(chance),
        })
    }

    /// The factor over one set, and the chance of what it says by accident.
    fn over_files(&self, cells: &TransferCells<'_>, files: TransferFiles) -> Option<(FactorOverFiles, Option<f64>)> {
        let [base, other] = [&self.base, &self.other].map(|case| case.clone().with_word(files));
        let (usual, changed) = (cells.rounds_at(&TIME, &base)?, cells.rounds_at(self.metric, &other)?);
        let weighed = TestedFigure::from_pairs(&RoundHeadlines::common_passes([usual, changed]))?;
        let ratio = weighed.at_joint_level(TransferFiles::ALL.len()).estimate;
        let change = TimeChange::from_ratio(&ratio);
        let published = || Some(published_mean(&other)? / published_mean(&base)?);
        let over = FactorOverFiles {
            files: Name::new(files.name()),
            sides: [usual.metric_value(), changed.metric_value()],
            ratio,
            change,
            each: self.cost_count(files).and_then(|count| extra_time_each(usual, changed, count)),
            published: if self.metric.id == TIME.id { published() } else { None },
        };
        Some((over, change_p_value(&weighed, change)))
    }

    /// How often a set pays for the factor, where that is a cost for each file; `None` for a single file, which has no other
    /// connection, and where bytes drown the cost.
    fn cost_count(&self, files: TransferFiles) -> Option<f64> {
        match (self.factor, files) {
            (TransferFactor::ConnectionForEach, TransferFiles::Small) => Some(9.0),
            (TransferFactor::Replies, TransferFiles::Small) => Some(10.0),
            _ => None,
        }
    }
}

/// The chance of what a ratio says by accident; `None` of a range.
fn change_p_value(ratio: &TestedFigure, change: TimeChange) -> Option<f64> {
    let tested = ratio.test(1.0, Some(TimeChange::EQUIVALENCE_MARGIN))?;
    let same = tested.same.filter(|_| change == TimeChange::Same);
    Some(same.map_or(tested.differs, |same| same.chance).alone)
}

/// By how much longer, divided by a count.
fn extra_time_each(usual: &RoundHeadlines<'_>, changed: &RoundHeadlines<'_>, count: f64) -> Option<Estimate> {
    let longer = usual.combine(changed, |usual, changed| changed - usual);
    longer.estimate().map(|longer| longer.divided_by(count))
}

/// The published mean of a cell.
fn published_mean(case: &Case) -> Option<f64> {
    published_value(case).map(|value| value.value)
}

/// The machine of which times of cells were published.
fn published_machine() -> Option<&'static str> {
    let has_times = |reference: &&Reference| reference.values.iter().any(|value| value.metric == TIME.id);
    references().iter().find(has_times).map(|reference| reference.title.as_str())
}

/// What was published of a cell.
fn published_value(case: &Case) -> Option<&'static ReferenceValue> {
    let of = |value: &&ReferenceValue| value.metric == TIME.id && value.case == *case;
    references().iter().flat_map(|reference| &reference.values).find(of)
}

/// The settings at which all four pairs of the published methods were measured over one connection: as published, and with equal
/// bytes a call.
fn published_settings() -> [CellSetting; 3] {
    let [narrow, wide] = EQUAL_CALL_SIZES.map(|(window, buffer)| CellSetting {
        connection: ConnectionPolicy::Persistent,
        window,
        buffer,
    });
    [CellSetting { buffer: PUBLISHED_BUFFER, ..wide }, narrow, wide]
}

/// Whether mmap at both ends beats read/write at both.
fn mmap_conclusions(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let at = |setting| {
        let both = |sender, receiver| cell(sender, receiver, setting);
        let (base, other) =
            (both(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite), both(SenderMethod::Mmap, ReceiverMethod::Mmap));
        FactorComparison::new(TransferFactor::Mmap, base, other).conclude(cells)
    };
    published_settings().into_iter().filter_map(at).collect()
}

/// Whether what mmap gains as published is the gain of more bytes a call.
fn mmap_gain(cells: &TransferCells<'_>) -> Option<Conclusion> {
    let sets = TransferFiles::ALL.iter().filter_map(|&files| gain_over(cells, files));
    let (over, chances): (Vec<GainOverFiles>, Vec<Option<f64>>) = sets.unzip();
    let is_gain = |one: &GainOverFiles| TimeChange::from_ratio(&one.whole) == TimeChange::Shorter;
    let says =
        |one: &GainOverFiles| match [TimeChange::from_ratio(&one.by_bytes), TimeChange::from_ratio(&one.by_mapping)] {
            [_, TimeChange::Shorter] => Some(false),
            [TimeChange::Shorter, TimeChange::Same | TimeChange::Longer] => Some(true),
            _ => None,
        };
    let gaining = over.iter().filter(|one| is_gain(one));
    let holds = match gaining.map(says).collect::<Option<Vec<bool>>>() {
        Some(said) if !said.is_empty() => Some(said.iter().all(|&by_bytes| by_bytes)),
        _ => None,
    };
    // Any part of any set may be the one that decides.
    let parts = 3 * over.len();
    let of_gains = over.iter().zip(chances).filter(|(one, _)| is_gain(one)).map(|(_, chance)| chance);
    let chance = p_value_of_all(of_gains).map(|chance| chance * parts as f64).filter(|_| holds.is_some());
    let rounds = cells.hot.iter().map(|one| one.values.len()).min()?;
    let claim = Claim::Transfer(TransferClaim::Gain { over });
    let evidence = TestEvidence::Ratios { count: parts, rounds };
    (parts > 0).then_some(Conclusion { claim, holds, evidence, tested: outcome_of_p_value(chance) })
}

/// The gain over one set and its parts, and the chance of what all of them say by accident.
fn gain_over(cells: &TransferCells<'_>, files: TransferFiles) -> Option<(GainOverFiles, Option<f64>)> {
    let [few, _, many] = published_settings();
    let copying = |setting| cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, setting).with_word(files);
    let mapping = cell(SenderMethod::Mmap, ReceiverMethod::Mmap, few).with_word(files);
    let [slow, fast] = [copying(few), copying(many)].map(|case| cells.rounds_at(&TIME, &case));
    let (slow, fast, mapped) = (slow?, fast?, cells.rounds_at(&TIME, &mapping)?);
    let part = |base, other| TestedFigure::from_pairs(&RoundHeadlines::common_passes([base, other]));
    let parts = [part(slow, mapped)?, part(slow, fast)?, part(fast, mapped)?];
    let [whole, by_bytes, by_mapping] = parts.map(|part| part.at_joint_level(3 * TransferFiles::ALL.len()).estimate);
    let says = parts.iter().zip([whole, by_bytes, by_mapping]);
    let chance = p_value_of_all(says.map(|(part, estimate)| change_p_value(part, TimeChange::from_ratio(&estimate))));
    let published = published_mean(&mapping).zip(published_mean(&copying(few))).map(|(mapped, slow)| mapped / slow);
    Some((GainOverFiles { files: Name::new(files.name()), whole, by_bytes, by_mapping, published }, chance))
}

/// Which end's method decides.
fn end_effects(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let sets = published_settings()
        .into_iter()
        .flat_map(|setting| TransferFiles::ALL.iter().map(move |&files| (setting, files)));
    sets.filter_map(|(setting, files)| effects_over_files(cells, setting, files)).collect()
}

/// Signs of the cells rw/rw, rw/mmap, mmap/rw, mmap/mmap in the effects of the sender and the receiver, and in their interaction.
const SENDER_CONTRAST: [f64; 4] = [-0.5, -0.5, 0.5, 0.5];
const RECEIVER_CONTRAST: [f64; 4] = [-0.5, 0.5, -0.5, 0.5];
const INTERACTION_CONTRAST: [f64; 4] = [1.0, -1.0, -1.0, 1.0];

fn effects_over_files(cells: &TransferCells<'_>, setting: CellSetting, files: TransferFiles) -> Option<Conclusion> {
    let pairs = [SenderMethod::ReadWrite, SenderMethod::Mmap]
        .into_iter()
        .flat_map(|sender| [ReceiverMethod::ReadWrite, ReceiverMethod::Mmap].map(|receiver| (sender, receiver)));
    let cases: Vec<Case> = pairs.map(|(sender, receiver)| cell(sender, receiver, setting).with_word(files)).collect();
    let rounds: Vec<&RoundHeadlines<'_>> =
        cases.iter().map(|case| cells.rounds_at(&TIME, case)).collect::<Option<_>>()?;
    let passes = RoundHeadlines::common_passes::<4>(rounds.try_into().ok()?);
    let logs: Vec<[f64; 4]> = passes.into_iter().map(|pass| pass.map(f64::ln)).collect();
    let effect = |signs: [f64; 4]| {
        let sums: Vec<f64> =
            logs.iter().map(|logs| signs.iter().zip(logs).map(|(sign, log)| sign * log).sum()).collect();
        TestedFigure::from_logarithms(&sums)
    };
    let [sender, receiver, interaction] =
        [effect(SENDER_CONTRAST)?, effect(RECEIVER_CONTRAST)?, effect(INTERACTION_CONTRAST)?];
    // The difference of two sizes is a weighted sum as well, once their signs are known.
    let sign = |times: &TestedFigure| times.estimate.value.ln().signum();
    let signs = [sign(&receiver), sign(&sender)];
    let more: Vec<f64> =
        RECEIVER_CONTRAST.iter().zip(SENDER_CONTRAST).map(|(r, s)| signs[0] * r - signs[1] * s).collect();
    let more = effect([more[0], more[1], more[2], more[3]])?;
    let receiver_decides = more.estimate.is_above(1.0);
    Some(Conclusion {
        claim: Claim::Transfer(TransferClaim::Ends {
            held: without_axes(&cases[0], &[SenderMethod::AXIS, ReceiverMethod::AXIS]),
            ends: [sender.estimate, receiver.estimate],
            interaction: interaction.estimate,
            receiver_decides,
            published: is_receiver_decisive_published(&cases),
        }),
        holds: receiver_decides,
        evidence: TestEvidence::Contrasts { cells: 4, rounds: logs.len() },
        tested: more.test(1.0, None),
    })
}

/// Whether the receiver's method changes the published means more than the sender's.
fn is_receiver_decisive_published(cases: &[Case]) -> Option<bool> {
    let means: Vec<f64> = cases.iter().map(|case| published_mean(case).map(f64::ln)).collect::<Option<_>>()?;
    let size = |signs: [f64; 4]| signs.iter().zip(&means).map(|(sign, mean)| sign * mean).sum::<f64>().abs();
    Some(size(RECEIVER_CONTRAST) > size(SENDER_CONTRAST))
}

/// Whether more bytes a call, or a larger window, make a difference.
fn call_size_conclusions(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let copying = |setting| cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, setting);
    let mapping = |setting| cell(SenderMethod::Mmap, ReceiverMethod::Mmap, setting);
    let [published, narrow, wide] = published_settings();
    let per_file = |setting| CellSetting { connection: ConnectionPolicy::PerFile, buffer: PUBLISHED_BUFFER, ..setting };
    let all = [
        (TransferFactor::BytesOfACall, copying(published), copying(narrow)),
        (TransferFactor::BytesOfACall, copying(narrow), copying(wide)),
        (TransferFactor::Window, mapping(per_file(narrow)), mapping(per_file(wide))),
        (TransferFactor::Window, mapping(narrow), mapping(wide)),
    ];
    all.into_iter()
        .filter_map(|(factor, base, other)| FactorComparison::new(factor, base, other).conclude(cells))
        .collect()
}

/// What a connection for each file costs.
fn connection_conclusions(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let [setting, ..] = published_settings();
    let published = |sender, receiver| cell(sender, receiver, setting);
    let kept = [
        published(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite),
        published(SenderMethod::Mmap, ReceiverMethod::Mmap),
        best_cell(),
    ];
    let each = |case: Case| {
        FactorComparison::new(
            TransferFactor::ConnectionForEach,
            case.clone(),
            case.with_word(ConnectionPolicy::PerFile),
        )
        .conclude(cells)
    };
    kept.into_iter().filter_map(each).collect()
}

/// Replies, modes and methods around the best cell. A method that needs the ring is compared with the usual one in the ring.
fn other_factors(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let ring = || best_cell().with_word(WaitMode::Uring);
    let mut all = vec![FactorComparison::around_best(TransferFactor::Replies, ReplyPolicy::PerFile)];
    all.extend(
        [WaitMode::Nonblocking, WaitMode::Signal, WaitMode::Uring]
            .map(|mode| FactorComparison::around_best(TransferFactor::Mode, mode)),
    );
    let senders = [SenderMethod::Mmap, SenderMethod::Sendfile, SenderMethod::Splice, SenderMethod::ZeroCopy];
    all.extend(senders.map(|sender| FactorComparison::around_best(TransferFactor::Sender, sender)));
    all.push(FactorComparison::new(TransferFactor::Sender, ring(), ring().with_word(SenderMethod::Uring)));
    all.extend(
        [ReceiverMethod::Mmap, ReceiverMethod::Splice]
            .map(|one| FactorComparison::around_best(TransferFactor::Receiver, one)),
    );
    all.push(FactorComparison::new(TransferFactor::Receiver, ring(), ring().with_word(ReceiverMethod::Uring)));
    all.iter().filter_map(|compared| compared.conclude(cells)).collect()
}

/// What was called asynchronous, with both ends in the kernel as it was published. It is never set beside the mode of signals.
fn asynchronous_mode(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let setting =
        CellSetting { connection: ConnectionPolicy::PerFile, window: EQUAL_CALL_SIZES[1].0, buffer: PUBLISHED_BUFFER };
    let pairs = [
        (SenderMethod::KernelReadWrite, ReceiverMethod::KernelReadWrite),
        (SenderMethod::KernelMmap, ReceiverMethod::KernelMmap),
    ];
    let of = |(sender, receiver)| {
        let blocking = cell(sender, receiver, setting);
        FactorComparison::new(TransferFactor::Mode, blocking.clone(), blocking.with_word(WaitMode::Fasync))
            .conclude(cells)
    };
    pairs.into_iter().filter_map(of).collect()
}

/// What it costs that files are not in memory, by method of sending.
fn cold_file_cost(cells: &TransferCells<'_>) -> Vec<Conclusion> {
    let of = |&sender: &SenderMethod| {
        let case = best_cell().with_word(sender).with_word(usual_mode(sender));
        let compared = FactorComparison::new(TransferFactor::Cold, case.clone(), case);
        FactorComparison { metric: &COLD_TIME, ..compared }.conclude(cells)
    };
    SenderMethod::ALL.iter().filter_map(of).collect()
}
