//! Transfers of files: whether mmap wins and at which end, what a connection, a reply, a larger call or another way to wait changes,
//! and what remains of the published findings.

use kelvin_core::catalogue::transfer::*;

use kelvin_reference::published::references;

use crate::prelude::*;

pub(super) mod tables;

/// The study.
pub(super) const TRANSFER_STUDY: Name = Name::new("transfer");
/// The hazard of a directory for test files on tmpfs.
const SCRATCH_IN_MEMORY: &str = "scratch_in_memory";

pub(super) const DESIGN: &str = "Files were sent from one process to another over loopback by several methods at either end, in several rounds of \
     fresh processes, interleaved; each trial's bytes were compared. Three sets: 10 files of 2.4 kB, 1 file of 12 MB, 2 files of 182 MB. \
     One factor is changed at a time.";

/// Conclusions from the metrics `transfer.time` and `transfer.cold`.
pub(crate) fn transfer(evidence: &Evidence<'_>) -> Option<Study> {
    let in_memory = evidence.run.header.hazards.iter().any(|hazard| hazard.id == *SCRATCH_IN_MEMORY);
    let cells = TransferCells { evidence, in_memory };
    let factors = |factors: Vec<FactorComparison>| factors.into_iter().filter_map(|factor| factor.conclude(&cells));
    let sets = published_settings()
        .into_iter()
        .flat_map(|setting| TransferFiles::ALL.iter().map(move |&files| (setting, files)));
    let end_effects = sets.filter_map(|(setting, files)| effects_over_files(&cells, setting, files));
    let conclusions = factors(published_settings().map(mmap_factor).into())
        .chain(mmap_gain(&cells))
        .chain(end_effects)
        .chain(factors(call_factors()))
        .chain(factors(method_factors()));
    Study::new(TRANSFER_STUDY, DESIGN, conclusions.collect())
}

/// The rounds of all cells.
struct TransferCells<'e, 'r> {
    evidence: &'e Evidence<'r>,
    /// Whether they were written to a file system in memory.
    in_memory: bool,
}

impl<'e, 'r> TransferCells<'e, 'r> {
    fn rounds_at(&self, metric: &Metric, case: &Case) -> Option<&'e RoundHeadlines<'r>> {
        // A buffer is of no use where both ends map: cells that differ in it alone do the same.
        let is_all_mapped = |case: &Case| {
            SenderMethod::of(case).is_some_and(SenderMethod::is_mapping)
                && ReceiverMethod::of(case).is_some_and(ReceiverMethod::is_mapping)
        };
        let is_same = |candidate: &Case| {
            candidate == case
                || is_all_mapped(candidate) && without_axes(candidate, &[BUFFER]) == without_axes(case, &[BUFFER])
        };
        self.evidence.all_cases(metric).iter().find(|rounds| is_same(rounds.case) && rounds.are_positive())
    }
}

/// One factor: what is compared with what.
struct FactorComparison {
    factor: TransferFactor,
    /// The claim, as the beginning of a sentence.
    claim: String,
    base: Case,
    other: Case,
    /// The metric of the other side, where it is not the same.
    metric: &'static Metric,
}

impl FactorComparison {
    fn new(factor: TransferFactor, claim: String, base: Case, other: Case) -> Self {
        Self { factor, claim, base, other, metric: &TIME }
    }

    /// The best cell with another value of a factor.
    fn around_best(factor: TransferFactor, claim: String, value: impl Into<AxisWord>) -> Self {
        Self::new(factor, claim, best_cell(), best_cell().with_word(value))
    }

    /// The answer; `None` where no set was measured with both.
    fn conclude(self, cells: &TransferCells<'_, '_>) -> Option<StatedConclusion> {
        let sets = TransferFiles::ALL.iter().filter_map(|&files| self.over_files(cells, files));
        let (by_files, chances): (Vec<FactorOverFiles>, Vec<Option<f64>>) = sets.unzip();
        let expected = if self.factor.is_gain() { TimeChange::Shorter } else { TimeChange::Longer };
        let changes = || by_files.iter().map(|set| set.change);
        let holds = match changes().any(|change| change == expected) {
            true => Some(true),
            false => (!changes().any(|change| change == TimeChange::NotKnown)).then_some(false),
        };
        let rounds = by_files.iter().flat_map(|set| set.sides.iter().map(|side| side.rounds)).min()?;
        // One set that shows it is found among all sets, while all are needed to refute it.
        let expected_chances =
            by_files.iter().zip(&chances).filter(|(set, _)| set.change == expected).map(|(_, chance)| *chance);
        let chance = match holds {
            Some(true) => p_value_of_any(expected_chances, by_files.len()),
            _ => p_value_of_all(chances.iter().copied()),
        };
        let list: Vec<String> = by_files.iter().map(over_files_text).collect();
        // Of which sets the claim does not hold, or is not known.
        let is_unlike = |set: &FactorOverFiles| set.change != expected && set.change != TimeChange::NotKnown;
        let exceptions = set_names(&by_files, is_unlike).map(|names| format!(", and not with {names}"));
        let undecided = set_names(&by_files, |set| set.change == TimeChange::NotKnown);
        let rest: String =
            exceptions.into_iter().chain(undecided.map(|names| format!(", not known with {names}"))).collect();
        let files = match set_names(&by_files, |set| set.change == expected) {
            Some(files) if !rest.is_empty() => format!(", with {files}{rest}"),
            _ => String::new(),
        };
        let (list, published) = (list.join("; "), published_agreement(self.factor, &by_files, cells.in_memory));
        let text = format!("{}{files}: {list}{published}", self.claim);
        let test = passes_test(by_files.len(), rounds, outcome_of_p_value(chance));
        let Self { factor, base, other, .. } = self;
        let claim = TransferClaim::Factor { factor, base, other, by_files, in_memory: cells.in_memory };
        Some(test.conclude(Claim::Transfer(claim), holds, text))
    }

    /// The factor over one set, and the p value of its change.
    fn over_files(
        &self,
        cells: &TransferCells<'_, '_>,
        files: TransferFiles,
    ) -> Option<(FactorOverFiles, Option<f64>)> {
        let [base, other] = [&self.base, &self.other].map(|case| case.clone().with_word(files));
        let (base_rounds, other_rounds) = (cells.rounds_at(&TIME, &base)?, cells.rounds_at(self.metric, &other)?);
        let tested = TestedFigure::from_pairs(&RoundHeadlines::common_passes([base_rounds, other_rounds]))?;
        let ratio = tested.at_joint_level(TransferFiles::ALL.len()).estimate;
        let change = TimeChange::from_ratio(&ratio);
        // How often a set pays for the factor, where that is a cost for each file: not a single file, which has no other connection, and
        // not where bytes drown the cost.
        let costs = match (self.factor, files) {
            (TransferFactor::ConnectionPerFile, TransferFiles::Small) => Some(9.0),
            (TransferFactor::Replies, TransferFiles::Small) => Some(10.0),
            _ => None,
        };
        let increase = || base_rounds.combine(other_rounds, |base_time, other_time| other_time - base_time).estimate();
        let published = || Some(published_value(&other)?.value / published_value(&base)?.value);
        let comparison = FactorOverFiles {
            files: Name::new(files.name()),
            sides: [base_rounds.metric_value(), other_rounds.metric_value()],
            ratio,
            change,
            per_file: costs.and_then(|count| Some(increase()?.divided_by(count))),
            published: if self.metric.id == TIME.id { published() } else { None },
        };
        Some((comparison, change_p_value(&tested, change)))
    }
}

/// The p value of the change that a ratio shows; `None` of a range.
fn change_p_value(ratio: &TestedFigure, change: TimeChange) -> Option<f64> {
    let outcome = ratio.test(1.0, Some(TimeChange::EQUIVALENCE_MARGIN))?;
    let equivalence = outcome.equivalence.filter(|_| change == TimeChange::Same);
    Some(equivalence.map_or(outcome.difference, |test| test.p_value).raw)
}

/// The machine of which times of cells were published.
fn published_machine() -> Option<&'static str> {
    let has_times = |reference: &&Reference| reference.values.iter().any(|value| value.metric == TIME.id);
    references().iter().find(has_times).map(|reference| reference.title.as_str())
}

/// What was published of a cell.
fn published_value(case: &Case) -> Option<&'static ReferenceValue> {
    let is_match = |value: &&ReferenceValue| value.metric == TIME.id && value.case == *case;
    references().iter().flat_map(|reference| &reference.values).find(is_match)
}

/// The settings at which all four pairs of the published methods were measured over one connection: as published, and with equal
/// bytes a call.
fn published_settings() -> [CellSetting; 3] {
    let [small_calls, large_calls] = EQUAL_CALL_SIZES.map(|(window, buffer)| CellSetting {
        connection: ConnectionPolicy::Persistent,
        window,
        buffer,
    });
    [CellSetting { buffer: PUBLISHED_BUFFER, ..large_calls }, small_calls, large_calls]
}

/// The test of ratios of rounds of the same pass.
fn passes_test(count: usize, rounds: usize, outcome: Option<kelvin_core::TestOutcome>) -> ClaimTest {
    let text = format!(
        "median ratio within a pass, {rounds} passes or more, jointly at 95 % over {}",
        counted_text(count as u64, "set")
    );
    ClaimTest::new(TestEvidence::Ratios { count, rounds }, text, outcome)
}

fn copying(setting: CellSetting) -> Case {
    cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, setting)
}

fn mapping(setting: CellSetting) -> Case {
    cell(SenderMethod::Mmap, ReceiverMethod::Mmap, setting)
}

/// Whether mmap at both ends beats read/write at both.
fn mmap_factor(setting: CellSetting) -> FactorComparison {
    let (base, other) = (copying(setting), mapping(setting));
    let (pages, buffer) = (window_pages(&other), bytes(buffer_bytes(&base)));
    let claim = format!("mmap at both ends is faster than read/write, {pages} against {buffer} a call");
    FactorComparison::new(TransferFactor::Mmap, claim, base, other)
}

/// Whether what mmap gains as published is the gain of more bytes a call.
fn mmap_gain(cells: &TransferCells<'_, '_>) -> Option<StatedConclusion> {
    let sets = TransferFiles::ALL.iter().filter_map(|&files| gain_over(cells, files));
    let (by_files, chances): (Vec<GainOverFiles>, Vec<Option<f64>>) = sets.unzip();
    let is_gain = |set: &GainOverFiles| TimeChange::from_ratio(&set.whole) == TimeChange::Shorter;
    let is_by_bytes =
        |set: &GainOverFiles| match [TimeChange::from_ratio(&set.by_bytes), TimeChange::from_ratio(&set.by_mapping)] {
            [_, TimeChange::Shorter] => Some(false),
            [TimeChange::Shorter, TimeChange::Same | TimeChange::Longer] => Some(true),
            _ => None,
        };
    let gain_sets = by_files.iter().filter(|set| is_gain(set));
    let holds = match gain_sets.map(is_by_bytes).collect::<Option<Vec<bool>>>() {
        Some(answers) if !answers.is_empty() => Some(answers.iter().all(|&by_bytes| by_bytes)),
        _ => None,
    };
    // Any part of any set may be the one that decides.
    let parts = 3 * by_files.len();
    let gain_chances = by_files.iter().zip(chances).filter(|(set, _)| is_gain(set)).map(|(_, chance)| chance);
    let chance = p_value_of_all(gain_chances).map(|chance| chance * parts as f64).filter(|_| holds.is_some());
    let rounds = cells.evidence.all_cases(&TIME).iter().map(|set| set.values.len()).min()?;
    if parts == 0 {
        return None;
    }
    // `1 file of 12 MB 0.40 times as long = 0.17 by calls of 1 MiB x 2.32 by mapping in place of those; published 0.16`.
    let gain = |set: &GainOverFiles| {
        let (files, times, published) =
            (file_set_named(&set.files), number(set.whole.value), published_suffix(set.published));
        let [by_bytes, by_mapping] = [&set.by_bytes, &set.by_mapping].map(|part| span_text(part, number));
        format!(
            "{files} {times} times as long = {by_bytes} by calls of 1 MiB x {by_mapping} by mapping in place of those{published}"
        )
    };
    let list: Vec<String> = by_files.iter().map(gain).collect();
    let text = format!(
        "what mmap gains over 512 B a call comes from more bytes a call, not from mapping: {}",
        list.join("; ")
    );
    let test = passes_test(parts, rounds, outcome_of_p_value(chance));
    Some(test.conclude(Claim::Transfer(TransferClaim::Gain { by_files }), holds, text))
}

/// The gain over one set and its parts, and the p value of all of them together.
fn gain_over(cells: &TransferCells<'_, '_>, files: TransferFiles) -> Option<(GainOverFiles, Option<f64>)> {
    let [small_calls, _, large_calls] = published_settings();
    let copying = |setting| copying(setting).with_word(files);
    let mapping = mapping(small_calls).with_word(files);
    let [slow, fast] = [copying(small_calls), copying(large_calls)].map(|case| cells.rounds_at(&TIME, &case));
    let (slow, fast, mapped) = (slow?, fast?, cells.rounds_at(&TIME, &mapping)?);
    let part = |base, other| TestedFigure::from_pairs(&RoundHeadlines::common_passes([base, other]));
    let parts = [part(slow, mapped)?, part(slow, fast)?, part(fast, mapped)?];
    let [whole, by_bytes, by_mapping] = parts.map(|part| part.at_joint_level(3 * TransferFiles::ALL.len()).estimate);
    let estimates = parts.iter().zip([whole, by_bytes, by_mapping]);
    let chance =
        p_value_of_all(estimates.map(|(part, estimate)| change_p_value(part, TimeChange::from_ratio(&estimate))));
    let published = published_value(&mapping).zip(published_value(&copying(small_calls)));
    let published = published.map(|(mapped, slow)| mapped.value / slow.value);
    Some((GainOverFiles { files: Name::new(files.name()), whole, by_bytes, by_mapping, published }, chance))
}

/// Signs of the cells rw/rw, rw/mmap, mmap/rw, mmap/mmap in the effects of the sender and the receiver, and in their interaction.
const SENDER_CONTRAST: [f64; 4] = [-0.5, -0.5, 0.5, 0.5];
const RECEIVER_CONTRAST: [f64; 4] = [-0.5, 0.5, -0.5, 0.5];
const INTERACTION_CONTRAST: [f64; 4] = [1.0, -1.0, -1.0, 1.0];

fn effects_over_files(
    cells: &TransferCells<'_, '_>,
    setting: CellSetting,
    files: TransferFiles,
) -> Option<StatedConclusion> {
    let from = |sender| {
        [ReceiverMethod::ReadWrite, ReceiverMethod::Mmap].map(|end| cell(sender, end, setting).with_word(files))
    };
    let cases = [from(SenderMethod::ReadWrite), from(SenderMethod::Mmap)].concat();
    let rounds = cases.iter().map(|case| cells.rounds_at(&TIME, case)).collect::<Option<Vec<_>>>()?;
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
    let contrast = |cell: usize| signs[0] * RECEIVER_CONTRAST[cell] - signs[1] * SENDER_CONTRAST[cell];
    let difference = effect(std::array::from_fn(contrast))?;
    let receiver_decides = difference.estimate.is_above(1.0);
    let fixed = without_axes(&cases[0], &[SenderMethod::AXIS, ReceiverMethod::AXIS]);
    let [sender, receiver, interaction] = [sender, receiver, interaction].map(|effect| effect.estimate);
    // The result by the published means.
    let log_means: Option<Vec<f64>> = cases.iter().map(|case| Some(published_value(case)?.value.ln())).collect();
    let published = log_means.map(|values| {
        let size = |signs: [f64; 4]| signs.iter().zip(&values).map(|(sign, mean)| sign * mean).sum::<f64>().abs();
        size(RECEIVER_CONTRAST) > size(SENDER_CONTRAST)
    });
    let times = |effect: &Estimate| span_text(effect, number).replacen(" (", " times as long (", 1);
    let interaction_text = span_text(&interaction, number).replacen(" (", " times what the two alone would give (", 1);
    let published_text = match published {
        Some(true) => "; the published means agree",
        Some(false) => "; by the published means the sender's does",
        None => "",
    };
    let (files, pages, buffer) = (file_set(files), window_pages(&fixed), bytes(buffer_bytes(&fixed)));
    let [at_sender, at_receiver] = [&sender, &receiver].map(times);
    let text = format!(
        "{files}, {pages} against {buffer} a call: the receiver's method decides more than the sender's: mmap at the receiver takes \
         {at_receiver}, at the sender {at_sender}; both together {interaction_text}{published_text}"
    );
    let rounds = logs.len();
    let test = format!("effects on the logarithm over 4 cells within a pass, {rounds} passes or more");
    let test = ClaimTest::new(TestEvidence::Contrasts { cells: 4, rounds }, test, difference.test(1.0, None));
    let claim = TransferClaim::Ends { fixed, ends: [sender, receiver], interaction, receiver_decides, published };
    Some(test.conclude(Claim::Transfer(claim), receiver_decides, text))
}

/// Whether more bytes a call, or a larger window, make a difference.
fn call_factors() -> Vec<FactorComparison> {
    let [published, small_calls, large_calls] = published_settings();
    let per_file = |setting| CellSetting { connection: ConnectionPolicy::PerFile, buffer: PUBLISHED_BUFFER, ..setting };
    let buffers = |base: CellSetting, other: CellSetting| {
        let [base_bytes, other_bytes] = [base.buffer, other.buffer].map(bytes);
        let claim = format!("read/write at both ends is faster with {other_bytes} a call than with {base_bytes}");
        FactorComparison::new(TransferFactor::CallBytes, claim, copying(base), copying(other))
    };
    let windows = |base: CellSetting, other: CellSetting| {
        let (other_window, base_window, connection) = (other.window, base.window, connection_text(base.connection));
        let claim = format!(
            "mmap at both ends is faster with windows of {other_window} pages than of {base_window} pages, {connection}"
        );
        FactorComparison::new(TransferFactor::Window, claim, mapping(base), mapping(other))
    };
    let connections = |case: Case| {
        let claim = format!("{}, {}: a connection for each file costs time", end_methods(&case), call_amounts(&case));
        let other = case.clone().with_word(ConnectionPolicy::PerFile);
        FactorComparison::new(TransferFactor::ConnectionPerFile, claim, case, other)
    };
    vec![
        buffers(published, small_calls),
        buffers(small_calls, large_calls),
        windows(per_file(small_calls), per_file(large_calls)),
        windows(small_calls, large_calls),
        connections(copying(published)),
        connections(mapping(published)),
        connections(best_cell()),
    ]
}

/// Replies, modes and methods around the best cell. A method that needs the ring is compared with the usual one in the ring.
fn method_factors() -> Vec<FactorComparison> {
    let ring = || best_cell().with_word(WaitMode::Uring);
    let replies = "waiting for a reply to each file before the next costs time".to_owned();
    let mut list = vec![FactorComparison::around_best(TransferFactor::Replies, replies, ReplyPolicy::PerFile)];
    let modes = [
        (WaitMode::Nonblocking, "calls that do not block, and epoll,"),
        (WaitMode::Signal, "calls that do not block, and signals,"),
        (WaitMode::Uring, "requests of a ring, one at a time,"),
    ];
    list.extend(modes.map(|(mode, subject)| {
        let claim = format!("{subject} in place of calls that block cost time");
        FactorComparison::around_best(TransferFactor::Mode, claim, mode)
    }));
    let faster_claim = |method: &str, end: &str| format!("{method} is faster than read/write at the {end}");
    let senders = [SenderMethod::Mmap, SenderMethod::Sendfile, SenderMethod::Splice, SenderMethod::ZeroCopy];
    list.extend(senders.map(|sender| {
        FactorComparison::around_best(TransferFactor::Sender, faster_claim(sender.name(), "sender"), sender)
    }));
    let claim = faster_claim(SenderMethod::Uring.name(), "sender, both in a ring");
    list.push(FactorComparison::new(TransferFactor::Sender, claim, ring(), ring().with_word(SenderMethod::Uring)));
    list.extend([ReceiverMethod::Mmap, ReceiverMethod::Splice].map(|receiver| {
        FactorComparison::around_best(TransferFactor::Receiver, faster_claim(receiver.name(), "receiver"), receiver)
    }));
    let claim = faster_claim(ReceiverMethod::Uring.name(), "receiver, both in a ring");
    list.push(FactorComparison::new(TransferFactor::Receiver, claim, ring(), ring().with_word(ReceiverMethod::Uring)));
    let connection = ConnectionPolicy::PerFile;
    let setting = CellSetting { connection, window: EQUAL_CALL_SIZES[1].0, buffer: PUBLISHED_BUFFER };
    let kernel_cases = [
        cell(SenderMethod::KernelReadWrite, ReceiverMethod::KernelReadWrite, setting),
        cell(SenderMethod::KernelMmap, ReceiverMethod::KernelMmap, setting),
    ];
    list.extend(kernel_cases.map(|case| {
        let (methods, amounts) = (end_methods(&case), call_amounts(&case));
        let claim = format!(
            "{methods}, {amounts}, {}: O_ASYNC on sockets in the kernel, whose calls block all the same, costs time",
            connection_text(connection)
        );
        FactorComparison::new(TransferFactor::Mode, claim, case.clone(), case.with_word(WaitMode::Fasync))
    }));
    list.extend(SenderMethod::ALL.iter().map(|&sender| {
        let case = best_cell().with_word(sender).with_word(usual_mode(sender));
        let claim = format!("sent by {}, files that are not in memory take longer", sender.name());
        let comparison = FactorComparison::new(TransferFactor::ColdCache, claim, case.clone(), case);
        FactorComparison { metric: &COLD_TIME, ..comparison }
    }));
    list
}

/// A cell: `rw/mmap, per file, 16 pages, 512 B`. What is as usual goes without saying.
fn cell_text(case: &Case) -> String {
    let mut parts = vec![end_methods(case)];
    if ConnectionPolicy::of(case) == Some(ConnectionPolicy::PerFile) {
        parts.push("per file".into());
    }
    parts.push(call_amounts(case));
    parts.extend(WaitMode::of(case).filter(|&mode| mode != WaitMode::Blocking).map(|mode| mode.name().to_owned()));
    if ReplyPolicy::of(case) == Some(ReplyPolicy::PerFile) {
        parts.push("replies".into());
    }
    parts.join(", ")
}

/// `rw/mmap`.
fn end_methods(case: &Case) -> String {
    let [sender, receiver] = [SenderMethod::AXIS, ReceiverMethod::AXIS].map(|axis| axis.word_in(case).unwrap_or("?"));
    format!("{sender}/{receiver}")
}

/// What a call moves: pages where an end maps, bytes where one does not, both in published cells, which have both.
fn call_amounts(case: &Case) -> String {
    let is_mapping = [
        SenderMethod::of(case).is_some_and(SenderMethod::is_mapping),
        ReceiverMethod::of(case).is_some_and(ReceiverMethod::is_mapping),
    ];
    let is_published = buffer_bytes(case) == PUBLISHED_BUFFER;
    let window = (is_mapping.contains(&true) || is_published).then(|| window_pages(case));
    let buffer = is_mapping.contains(&false).then(|| bytes(buffer_bytes(case)));
    window.into_iter().chain(buffer).collect::<Vec<_>>().join(", ")
}

fn window_pages(case: &Case) -> String {
    format!("{} pages", WINDOW.number_in(case).unwrap_or(0))
}

fn buffer_bytes(case: &Case) -> u64 {
    BUFFER.number_in(case).unwrap_or(0)
}

fn connection_text(connection: ConnectionPolicy) -> &'static str {
    match connection {
        ConnectionPolicy::PerFile => "with a connection for each file",
        ConnectionPolicy::Persistent => "with one connection",
    }
}

/// A set of files with its sizes.
fn file_set(files: TransferFiles) -> &'static str {
    match files {
        TransferFiles::Small => "10 files of 2.4 kB",
        TransferFiles::One => "1 file of 12 MB",
        TransferFiles::Large => "2 files of 182 MB",
    }
}

fn file_set_named(name: &str) -> &str {
    TransferFiles::ALL.iter().find(|files| files.name() == name).map_or(name, |&files| file_set(files))
}

fn published_suffix(published: Option<f64>) -> String {
    published.map_or_else(String::new, |ratio| format!("; published {}", number(ratio)))
}

/// `1 file of 12 MB 0.55 times as long (0.50 to 0.61; published 0.16)`.
fn over_files_text(comparison: &FactorOverFiles) -> String {
    let per_file = comparison.per_file.map_or_else(String::new, |per_file| {
        format!(", {} each", span_text(&per_file, |time| value_text(time, Unit::Nanoseconds)))
    });
    let ratio = span_text(&comparison.ratio, number);
    let (value, ends) = ratio.split_once(' ').unwrap_or_default();
    let span = format!("{}{})", ends.trim_end_matches(')'), published_suffix(comparison.published));
    let text = match comparison.change {
        TimeChange::Same => format!("as long {span}"),
        TimeChange::NotKnown => format!("not known {span}"),
        TimeChange::Shorter | TimeChange::Longer => format!("{value} times as long {span}"),
    };
    format!("{} {text}{per_file}", file_set_named(&comparison.files))
}

/// The sets of files that satisfy a predicate.
fn set_names(sets: &[FactorOverFiles], predicate: impl Fn(&FactorOverFiles) -> bool) -> Option<String> {
    let names: Vec<&str> = sets.iter().filter(|set| predicate(set)).map(|set| file_set_named(&set.files)).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Whether the published means agree; if not, and faults on a file decide, how to test whether the file system is the reason.
fn published_agreement(factor: TransferFactor, sets: &[FactorOverFiles], in_memory: bool) -> String {
    let is_decided = |set: &FactorOverFiles| set.change != TimeChange::NotKnown && set.published.is_some();
    let is_unlike = |set: &FactorOverFiles| {
        is_decided(set) && set.published.is_some_and(|ratio| TimeChange::from_published_ratio(ratio) != set.change)
    };
    let hint = match factor {
        TransferFactor::Mmap | TransferFactor::Window if in_memory => {
            ", not explained, and not by blocks of a file system: these files were written to memory"
        }
        TransferFactor::Mmap | TransferFactor::Window => {
            ", not explained: with --dir on tmpfs the same study shows whether the file system is the reason"
        }
        _ => "",
    };
    match (set_names(sets, is_unlike), set_names(sets, is_decided)) {
        (Some(names), _) => format!("; the published means contradict it for {names}{hint}"),
        (None, Some(names)) => format!("; the published means agree for {names}"),
        (None, None) => String::new(),
    }
}
