//! Transfers of files: whether mmap wins and at which end, what a connection, a reply, a larger call or another way to wait changes,
//! and what remains of the published findings.

use kelvin_catalogue::transfer::{
    BUFFER, COLD, Connection, EQUAL_BYTES, Files, Mode, PUBLISHED_BUFFER, Receiver, Reply, Sender, Setting, TIME, best,
    cell, usual_mode,
};
use kelvin_model::{Case, Name, Reference, ReferenceValue};
use kelvin_model::{
    Change, Claim, Conclusion, Estimate, GainOverFiles, Metric, OverFiles, Point, Test, TransferClaim, TransferFactor,
};

use super::crossing::without;
use crate::evidence::{Evidence, Rounds, Weighed, chance_of_all, chance_of_any, decided_by};
use crate::reference::references;
use crate::result::{Concluded, Study};

pub(super) mod tables;

/// The study.
pub(super) const TRANSFER: Name = Name::new("transfer");
/// The hazard of a directory for test files on tmpfs.
const SCRATCH_IN_MEMORY: &str = "scratch_in_memory";

/// Conclusions from the metrics `transfer.time` and `transfer.cold`.
pub(crate) fn transfer(evidence: &Evidence<'_>) -> Option<Study> {
    let in_memory = evidence.run.outline.hazards.iter().any(|hazard| hazard.id == *SCRATCH_IN_MEMORY);
    let cells = Cells { hot: evidence.all(&TIME), cold: evidence.all(&COLD), in_memory };
    let conclusions = mmap(&cells)
        .into_iter()
        .chain(gain(&cells))
        .chain(ends(&cells))
        .chain(calls(&cells))
        .chain(connections(&cells))
        .chain(others(&cells))
        .chain(asynchronous(&cells))
        .chain(cold(&cells))
        .collect();
    Some(study(conclusions)).filter(|study| !study.conclusions.is_empty())
}

/// The study with these conclusions.
pub(super) fn study(conclusions: Vec<Conclusion>) -> Study {
    let design = "Files were sent from one process to another over loopback by several methods at either end, in several rounds of \
                  fresh processes, interleaved; each trial's bytes were compared. Three sets: 10 files of 2.4 kB, 1 file of 12 MB, \
                  2 files of 182 MB. One factor is changed at a time.";
    let conclusions = conclusions.into_iter().map(Concluded::from).collect();
    Study {
        id: TRANSFER,
        answers: Vec::new(),
        design: design.into(),
        conclusions,
        tables: Vec::new(),
        in_tables: Vec::new(),
    }
}

/// The rounds of all cells.
struct Cells<'r> {
    hot: Vec<Rounds<'r>>,
    cold: Vec<Rounds<'r>>,
    /// Whether they were written to a file system in memory.
    in_memory: bool,
}

impl<'r> Cells<'r> {
    fn at(&self, metric: &Metric, case: &Case) -> Option<&Rounds<'r>> {
        let all = if metric.id == COLD.id { &self.cold } else { &self.hot };
        all.iter().find(|rounds| are_equal(rounds.case, case) && rounds.are_positive())
    }
}

/// Whether two cells do the same: a buffer is of no use where both ends map.
fn are_equal(one: &Case, other: &Case) -> bool {
    let both_map =
        |case: &Case| Sender::of(case).is_some_and(Sender::maps) && Receiver::of(case).is_some_and(Receiver::maps);
    one == other || both_map(one) && without(one, &[BUFFER]) == without(other, &[BUFFER])
}

/// One factor: what is compared with what.
struct Compared {
    factor: TransferFactor,
    base: Case,
    other: Case,
    /// The metric of the other side, where it is not the same.
    metric: &'static Metric,
}

impl Compared {
    fn new(factor: TransferFactor, base: Case, other: Case) -> Self {
        Self { factor, base, other, metric: &TIME }
    }

    /// The best cell with another value of a factor.
    fn around(factor: TransferFactor, value: impl Into<Point>) -> Self {
        Self::new(factor, best(), best().at(value))
    }

    /// The answer; `None` where no set was measured with both.
    fn conclude(&self, cells: &Cells<'_>) -> Option<Conclusion> {
        let sets = Files::ALL.iter().filter_map(|&files| self.over(cells, files));
        let (over, chances): (Vec<OverFiles>, Vec<Option<f64>>) = sets.unzip();
        let wanted = if self.factor.is_gain() { Change::Shorter } else { Change::Longer };
        let changes = || over.iter().map(|one| one.change);
        let holds = match changes().any(|change| change == wanted) {
            true => Some(true),
            false => (!changes().any(|change| change == Change::NotKnown)).then_some(false),
        };
        let rounds = over.iter().flat_map(|one| one.sides.iter().map(|side| side.rounds)).min()?;
        // One set that shows it is found among so many, while all are needed to refute it.
        let showing = over.iter().zip(&chances).filter(|(one, _)| one.change == wanted).map(|(_, chance)| *chance);
        let chance = match holds {
            Some(true) => chance_of_any(showing, over.len()),
            _ => chance_of_all(chances.iter().copied()),
        };
        Some(Conclusion {
            evidence: Test::Ratios { count: over.len(), rounds },
            claim: Claim::Transfer(TransferClaim::Factor {
                factor: self.factor,
                base: self.base.clone(),
                other: self.other.clone(),
                over,
                in_memory: cells.in_memory,
            }),
            holds,
            tested: decided_by(chance),
        })
    }

    /// The factor over one set, and the chance of what it says by accident.
    fn over(&self, cells: &Cells<'_>, files: Files) -> Option<(OverFiles, Option<f64>)> {
        let [base, other] = [&self.base, &self.other].map(|case| case.clone().at(files));
        let (usual, changed) = (cells.at(&TIME, &base)?, cells.at(self.metric, &other)?);
        let weighed = Weighed::of_pairs(&Rounds::in_common([usual, changed]))?;
        let ratio = weighed.jointly(Files::ALL.len()).estimate;
        let change = Change::of(&ratio);
        let published = || Some(published(&other)? / published(&base)?);
        let over = OverFiles {
            files: Name::new(files.name()),
            sides: [usual.side(), changed.side()],
            ratio,
            change,
            each: self.each(files).and_then(|count| longer_by(usual, changed, count)),
            published: if self.metric.id == TIME.id { published() } else { None },
        };
        Some((over, chance_of(&weighed, change)))
    }

    /// How often a set pays for the factor, where that is a cost for each file; `None` for a single file, which has no other
    /// connection, and where bytes drown the cost.
    fn each(&self, files: Files) -> Option<f64> {
        match (self.factor, files) {
            (TransferFactor::ConnectionForEach, Files::Small) => Some(9.0),
            (TransferFactor::Replies, Files::Small) => Some(10.0),
            _ => None,
        }
    }
}

/// The chance of what a ratio says by accident; `None` of a range.
fn chance_of(ratio: &Weighed, change: Change) -> Option<f64> {
    let tested = ratio.tested(1.0, Some(Change::MARGIN))?;
    let same = tested.same.filter(|_| change == Change::Same);
    Some(same.map_or(tested.differs, |same| same.chance).alone)
}

/// By how much longer, divided by a count.
fn longer_by(usual: &Rounds<'_>, changed: &Rounds<'_>, count: f64) -> Option<Estimate> {
    let longer = usual.joined(changed, |usual, changed| changed - usual);
    longer.estimate().map(|longer| longer.over(count))
}

/// The published mean of a cell.
fn published(case: &Case) -> Option<f64> {
    published_value(case).map(|value| value.value)
}

/// The machine of which times of cells were published.
fn published_on() -> Option<&'static str> {
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
fn settings() -> [Setting; 3] {
    let [narrow, wide] =
        EQUAL_BYTES.map(|(window, buffer)| Setting { connection: Connection::Persistent, window, buffer });
    [Setting { buffer: PUBLISHED_BUFFER, ..wide }, narrow, wide]
}

/// Whether mmap at both ends beats read/write at both.
fn mmap(cells: &Cells<'_>) -> Vec<Conclusion> {
    let at = |setting| {
        let both = |sender, receiver| cell(sender, receiver, setting);
        let (base, other) = (both(Sender::ReadWrite, Receiver::ReadWrite), both(Sender::Mmap, Receiver::Mmap));
        Compared::new(TransferFactor::Mmap, base, other).conclude(cells)
    };
    settings().into_iter().filter_map(at).collect()
}

/// Whether what mmap gains as published is the gain of more bytes a call.
fn gain(cells: &Cells<'_>) -> Option<Conclusion> {
    let sets = Files::ALL.iter().filter_map(|&files| gain_over(cells, files));
    let (over, chances): (Vec<GainOverFiles>, Vec<Option<f64>>) = sets.unzip();
    let is_gain = |one: &GainOverFiles| Change::of(&one.whole) == Change::Shorter;
    let says = |one: &GainOverFiles| match [Change::of(&one.by_bytes), Change::of(&one.by_mapping)] {
        [_, Change::Shorter] => Some(false),
        [Change::Shorter, Change::Same | Change::Longer] => Some(true),
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
    let chance = chance_of_all(of_gains).map(|chance| chance * parts as f64).filter(|_| holds.is_some());
    let rounds = cells.hot.iter().map(|one| one.values.len()).min()?;
    let claim = Claim::Transfer(TransferClaim::Gain { over });
    let evidence = Test::Ratios { count: parts, rounds };
    (parts > 0).then_some(Conclusion { claim, holds, evidence, tested: decided_by(chance) })
}

/// The gain over one set and its parts, and the chance of what all of them say by accident.
fn gain_over(cells: &Cells<'_>, files: Files) -> Option<(GainOverFiles, Option<f64>)> {
    let [few, _, many] = settings();
    let copying = |setting| cell(Sender::ReadWrite, Receiver::ReadWrite, setting).at(files);
    let mapping = cell(Sender::Mmap, Receiver::Mmap, few).at(files);
    let [slow, fast] = [copying(few), copying(many)].map(|case| cells.at(&TIME, &case));
    let (slow, fast, mapped) = (slow?, fast?, cells.at(&TIME, &mapping)?);
    let part = |base, other| Weighed::of_pairs(&Rounds::in_common([base, other]));
    let parts = [part(slow, mapped)?, part(slow, fast)?, part(fast, mapped)?];
    let [whole, by_bytes, by_mapping] = parts.map(|part| part.jointly(3 * Files::ALL.len()).estimate);
    let says = parts.iter().zip([whole, by_bytes, by_mapping]);
    let chance = chance_of_all(says.map(|(part, estimate)| chance_of(part, Change::of(&estimate))));
    let published = published(&mapping).zip(published(&copying(few))).map(|(mapped, slow)| mapped / slow);
    Some((GainOverFiles { files: Name::new(files.name()), whole, by_bytes, by_mapping, published }, chance))
}

/// Which end's method decides.
fn ends(cells: &Cells<'_>) -> Vec<Conclusion> {
    let sets = settings().into_iter().flat_map(|setting| Files::ALL.iter().map(move |&files| (setting, files)));
    sets.filter_map(|(setting, files)| effects(cells, setting, files)).collect()
}

/// Signs of the cells rw/rw, rw/mmap, mmap/rw, mmap/mmap in the effects of the sender and the receiver, and in their interaction.
const SENDER: [f64; 4] = [-0.5, -0.5, 0.5, 0.5];
const RECEIVER: [f64; 4] = [-0.5, 0.5, -0.5, 0.5];
const INTERACTION: [f64; 4] = [1.0, -1.0, -1.0, 1.0];

fn effects(cells: &Cells<'_>, setting: Setting, files: Files) -> Option<Conclusion> {
    let pairs = [Sender::ReadWrite, Sender::Mmap]
        .into_iter()
        .flat_map(|sender| [Receiver::ReadWrite, Receiver::Mmap].map(|receiver| (sender, receiver)));
    let cases: Vec<Case> = pairs.map(|(sender, receiver)| cell(sender, receiver, setting).at(files)).collect();
    let rounds: Vec<&Rounds<'_>> = cases.iter().map(|case| cells.at(&TIME, case)).collect::<Option<_>>()?;
    let passes = Rounds::in_common::<4>(rounds.try_into().ok()?);
    let logs: Vec<[f64; 4]> = passes.into_iter().map(|pass| pass.map(f64::ln)).collect();
    let effect = |signs: [f64; 4]| {
        let sums: Vec<f64> =
            logs.iter().map(|logs| signs.iter().zip(logs).map(|(sign, log)| sign * log).sum()).collect();
        Weighed::multiple(&sums)
    };
    let [sender, receiver, interaction] = [effect(SENDER)?, effect(RECEIVER)?, effect(INTERACTION)?];
    // The difference of two sizes is a weighted sum as well, once their signs are known.
    let sign = |times: &Weighed| times.estimate.value.ln().signum();
    let signs = [sign(&receiver), sign(&sender)];
    let more: Vec<f64> = RECEIVER.iter().zip(SENDER).map(|(r, s)| signs[0] * r - signs[1] * s).collect();
    let more = effect([more[0], more[1], more[2], more[3]])?;
    let receiver_decides = more.estimate.is_above(1.0);
    Some(Conclusion {
        claim: Claim::Transfer(TransferClaim::Ends {
            held: without(&cases[0], &[Sender::AXIS, Receiver::AXIS]),
            ends: [sender.estimate, receiver.estimate],
            interaction: interaction.estimate,
            receiver_decides,
            published: published_decides(&cases),
        }),
        holds: receiver_decides,
        evidence: Test::Contrasts { cells: 4, rounds: logs.len() },
        tested: more.tested(1.0, None),
    })
}

/// Whether the receiver's method changes the published means more than the sender's.
fn published_decides(cases: &[Case]) -> Option<bool> {
    let means: Vec<f64> = cases.iter().map(|case| published(case).map(f64::ln)).collect::<Option<_>>()?;
    let size = |signs: [f64; 4]| signs.iter().zip(&means).map(|(sign, mean)| sign * mean).sum::<f64>().abs();
    Some(size(RECEIVER) > size(SENDER))
}

/// Whether more bytes a call, or a larger window, make a difference.
fn calls(cells: &Cells<'_>) -> Vec<Conclusion> {
    let copying = |setting| cell(Sender::ReadWrite, Receiver::ReadWrite, setting);
    let mapping = |setting| cell(Sender::Mmap, Receiver::Mmap, setting);
    let [published, narrow, wide] = settings();
    let per_file = |setting| Setting { connection: Connection::PerFile, buffer: PUBLISHED_BUFFER, ..setting };
    let all = [
        (TransferFactor::BytesOfACall, copying(published), copying(narrow)),
        (TransferFactor::BytesOfACall, copying(narrow), copying(wide)),
        (TransferFactor::Window, mapping(per_file(narrow)), mapping(per_file(wide))),
        (TransferFactor::Window, mapping(narrow), mapping(wide)),
    ];
    all.into_iter().filter_map(|(factor, base, other)| Compared::new(factor, base, other).conclude(cells)).collect()
}

/// What a connection for each file costs.
fn connections(cells: &Cells<'_>) -> Vec<Conclusion> {
    let [setting, ..] = settings();
    let published = |sender, receiver| cell(sender, receiver, setting);
    let kept = [published(Sender::ReadWrite, Receiver::ReadWrite), published(Sender::Mmap, Receiver::Mmap), best()];
    let each = |case: Case| {
        Compared::new(TransferFactor::ConnectionForEach, case.clone(), case.at(Connection::PerFile)).conclude(cells)
    };
    kept.into_iter().filter_map(each).collect()
}

/// Replies, modes and methods around the best cell. A method that needs the ring is compared with the usual one in the ring.
fn others(cells: &Cells<'_>) -> Vec<Conclusion> {
    let ring = || best().at(Mode::Uring);
    let mut all = vec![Compared::around(TransferFactor::Replies, Reply::PerFile)];
    all.extend([Mode::Nonblocking, Mode::Signal, Mode::Uring].map(|mode| Compared::around(TransferFactor::Mode, mode)));
    let senders = [Sender::Mmap, Sender::Sendfile, Sender::Splice, Sender::ZeroCopy];
    all.extend(senders.map(|sender| Compared::around(TransferFactor::Sender, sender)));
    all.push(Compared::new(TransferFactor::Sender, ring(), ring().at(Sender::Uring)));
    all.extend([Receiver::Mmap, Receiver::Splice].map(|one| Compared::around(TransferFactor::Receiver, one)));
    all.push(Compared::new(TransferFactor::Receiver, ring(), ring().at(Receiver::Uring)));
    all.iter().filter_map(|compared| compared.conclude(cells)).collect()
}

/// What was called asynchronous, with both ends in the kernel as it was published. It is never set beside the mode of signals.
fn asynchronous(cells: &Cells<'_>) -> Vec<Conclusion> {
    let setting = Setting { connection: Connection::PerFile, window: EQUAL_BYTES[1].0, buffer: PUBLISHED_BUFFER };
    let pairs = [(Sender::KernelReadWrite, Receiver::KernelReadWrite), (Sender::KernelMmap, Receiver::KernelMmap)];
    let of = |(sender, receiver)| {
        let blocking = cell(sender, receiver, setting);
        Compared::new(TransferFactor::Mode, blocking.clone(), blocking.at(Mode::Fasync)).conclude(cells)
    };
    pairs.into_iter().filter_map(of).collect()
}

/// What it costs that files are not in memory, by method of sending.
fn cold(cells: &Cells<'_>) -> Vec<Conclusion> {
    let of = |&sender: &Sender| {
        let case = best().at(sender).at(usual_mode(sender));
        let compared = Compared::new(TransferFactor::Cold, case.clone(), case);
        Compared { metric: &COLD, ..compared }.conclude(cells)
    };
    Sender::ALL.iter().filter_map(of).collect()
}
