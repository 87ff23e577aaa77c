//! Transfers of files in words.

use kelvin_catalogue::transfer::{BUFFER, Connection, Files, Mode, PUBLISHED_BUFFER, Receiver, Reply, Sender, WINDOW};
use kelvin_model::units::{bytes, number, plain};
use kelvin_model::{Case, Change, Estimate, GainOverFiles, OverFiles, TransferClaim, TransferFactor, Unit};

use super::conclusions::of_range;

/// A cell: `rw/mmap, per file, 16 pages, 512 B`. What is as usual goes without saying.
pub(crate) fn cell(case: &Case) -> String {
    let mut parts = vec![ends(case)];
    if Connection::of(case) == Some(Connection::PerFile) {
        parts.push("per file".into());
    }
    parts.push(amounts(case));
    parts.extend(Mode::of(case).filter(|&mode| mode != Mode::Blocking).map(|mode| mode.name().to_owned()));
    if Reply::of(case) == Some(Reply::PerFile) {
        parts.push("replies".into());
    }
    parts.join(", ")
}

/// `rw/mmap`.
fn ends(case: &Case) -> String {
    let [sender, receiver] = [Sender::AXIS, Receiver::AXIS].map(|axis| axis.word_of(case).unwrap_or("?"));
    format!("{sender}/{receiver}")
}

/// What a call moves: pages where an end maps, bytes where one does not, both in published cells, which have both.
fn amounts(case: &Case) -> String {
    let maps = [Sender::of(case).is_some_and(Sender::maps), Receiver::of(case).is_some_and(Receiver::maps)];
    let is_published = buffer(case) == PUBLISHED_BUFFER;
    let window = (maps.contains(&true) || is_published).then(|| pages(case));
    let buffer = maps.contains(&false).then(|| bytes(buffer(case)));
    window.into_iter().chain(buffer).collect::<Vec<_>>().join(", ")
}

fn pages(case: &Case) -> String {
    format!("{} pages", WINDOW.of(case).unwrap_or(0))
}

fn buffer(case: &Case) -> u64 {
    BUFFER.of(case).unwrap_or(0)
}

/// A set of files with its sizes.
pub(crate) fn set(files: Files) -> &'static str {
    match files {
        Files::Small => "10 files of 2.4 kB",
        Files::One => "1 file of 12 MB",
        Files::Large => "2 files of 182 MB",
    }
}

fn set_of(name: &str) -> &str {
    Files::ALL.iter().find(|files| files.name() == name).map_or(name, |&files| set(files))
}

/// The sentence of a claim.
pub(super) fn claim(claim: &TransferClaim) -> String {
    match claim {
        TransferClaim::Factor { factor, base, other, over, in_memory } => {
            let list: Vec<String> = over.iter().map(over_files).collect();
            format!(
                "{}{}: {}{}",
                statement(*factor, base, other),
                of_which(*factor, over),
                list.join("; "),
                conclusion(*factor, over, *in_memory)
            )
        }
        TransferClaim::Gain { over } => {
            let list: Vec<String> = over.iter().map(gain).collect();
            format!(
                "what mmap gains over 512 B a call comes from more bytes a call, not from mapping: {}",
                list.join("; ")
            )
        }
        TransferClaim::Ends { held, ends, interaction, published, .. } => decides(held, ends, interaction, *published),
    }
}

/// `1 file of 12 MB 0.40 times as long = 0.17 by calls of 1 MiB x 2.32 by mapping in place of those (published: 0.16)`.
fn gain(of: &GainOverFiles) -> String {
    let span =
        |of: &Estimate| format!("{} ({}{} to {})", number(of.value), of_range(of), number(of.low), number(of.high));
    let published = of.published.map_or_else(String::new, |ratio| format!("; published {}", number(ratio)));
    format!(
        "{} {} times as long = {} by calls of 1 MiB x {} by mapping in place of those{published}",
        set_of(&of.files),
        number(of.whole.value),
        span(&of.by_bytes),
        span(&of.by_mapping)
    )
}

fn statement(factor: TransferFactor, base: &Case, other: &Case) -> String {
    let in_ring = if Mode::of(base) == Some(Mode::Uring) { ", both in a ring" } else { "" };
    match factor {
        TransferFactor::Mmap => {
            format!(
                "mmap at both ends is faster than read/write, {} against {} a call",
                pages(other),
                bytes(buffer(base))
            )
        }
        TransferFactor::BytesOfACall => format!(
            "read/write at both ends is faster with {} a call than with {}",
            bytes(buffer(other)),
            bytes(buffer(base))
        ),
        TransferFactor::Window => format!(
            "mmap at both ends is faster with windows of {} than of {}, {}",
            pages(other),
            pages(base),
            lasting(base)
        ),
        TransferFactor::ConnectionForEach => {
            format!("{}, {}: a connection for each file costs time", ends(base), amounts(base))
        }
        TransferFactor::Replies => "waiting for a reply to each file before the next costs time".into(),
        TransferFactor::Mode => match Mode::of(other) {
            Some(Mode::Fasync) => format!(
                "{}, {}, {}: O_ASYNC on sockets in the kernel, whose calls block all the same, costs time",
                ends(base),
                amounts(base),
                lasting(base)
            ),
            _ => format!("{} in place of calls that block cost time", waiting(other)),
        },
        TransferFactor::Sender => {
            format!("{} is faster than read/write at the sender{in_ring}", Sender::AXIS.word_of(other).unwrap_or("?"))
        }
        TransferFactor::Receiver => {
            format!(
                "{} is faster than read/write at the receiver{in_ring}",
                Receiver::AXIS.word_of(other).unwrap_or("?")
            )
        }
        TransferFactor::Cold => {
            format!("sent by {}, files that are not in memory take longer", Sender::AXIS.word_of(other).unwrap_or("?"))
        }
    }
}

fn lasting(case: &Case) -> &'static str {
    match Connection::of(case) {
        Some(Connection::PerFile) => "with a connection for each file",
        _ => "with one connection",
    }
}

fn waiting(case: &Case) -> &'static str {
    match Mode::of(case) {
        Some(Mode::Nonblocking) => "calls that do not block, and epoll,",
        Some(Mode::Signal) => "calls that do not block, and signals,",
        _ => "requests of a ring, one at a time,",
    }
}

/// `1 file of 12 MB 0.55 times as long (0.50 to 0.61; published 0.16)`.
fn over_files(over: &OverFiles) -> String {
    let published = over.published.map_or_else(String::new, |ratio| format!("; published {}", number(ratio)));
    let each = over.each.map_or_else(String::new, |each| format!(", {} each", nanoseconds(&each)));
    let ratio = &over.ratio;
    let span = format!("({}{} to {}{published})", of_range(ratio), number(ratio.low), number(ratio.high));
    let said = match over.change {
        Change::Same => format!("as long {span}"),
        Change::NotKnown => format!("not known {span}"),
        Change::Shorter | Change::Longer => format!("{} times as long {span}", number(ratio.value)),
    };
    format!("{} {said}{each}", set_of(&over.files))
}

/// `, with 1 file of 12 MB, and not with 10 files of 2.4 kB`: of which files a claim holds, where it does not hold of all.
fn of_which(factor: TransferFactor, over: &[OverFiles]) -> String {
    let claimed = if factor.is_gain() { Change::Shorter } else { Change::Longer };
    let names = |are: fn(Change, Change) -> bool| {
        let names: Vec<&str> =
            over.iter().filter(|one| are(one.change, claimed)).map(|one| set_of(&one.files)).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let Some(so) = names(|change, claimed| change == claimed) else { return String::new() };
    let not = names(|change, claimed| change != claimed && change != Change::NotKnown);
    let open = names(|change, _| change == Change::NotKnown);
    let rest = [not.map(|not| format!(", and not with {not}")), open.map(|open| format!(", not known with {open}"))];
    let rest: String = rest.into_iter().flatten().collect();
    if rest.is_empty() { rest } else { format!(", with {so}{rest}") }
}

/// `57.1 us (50.2 to 64.0)`.
fn nanoseconds(of: &Estimate) -> String {
    let [value, low, high] = [of.value, of.low, of.high].map(|value| plain(value, Unit::Nanoseconds));
    format!("{value} ({}{low} to {high})", of_range(of))
}

/// Whether the published means say the same.
fn conclusion(factor: TransferFactor, over: &[OverFiles], in_memory: bool) -> String {
    let decided = |one: &&OverFiles| one.change != Change::NotKnown && one.published.is_some();
    let is_unlike = |one: &&OverFiles| one.published.is_some_and(|ratio| Change::of_published(ratio) != one.change);
    let (decided, unlike): (Vec<&OverFiles>, Vec<&OverFiles>) =
        (over.iter().filter(decided).collect(), over.iter().filter(decided).filter(is_unlike).collect());
    let names = |all: &[&OverFiles]| all.iter().map(|one| set_of(&one.files)).collect::<Vec<_>>().join(" and ");
    match (decided.len(), unlike.is_empty()) {
        (0, _) => String::new(),
        (_, true) => format!("; the published means say the same of {}", names(&decided)),
        _ => format!("; the published means say otherwise of {}{}", names(&unlike), how_to_tell(factor, in_memory)),
    }
}

/// What tells whether the file system is the reason of a difference from the published means, where faults on a file decide.
fn how_to_tell(factor: TransferFactor, in_memory: bool) -> &'static str {
    match factor {
        TransferFactor::Mmap | TransferFactor::Window if in_memory => {
            ", not explained, and not by blocks of a file system: these files were written to memory"
        }
        TransferFactor::Mmap | TransferFactor::Window => {
            ", not explained: with --dir on tmpfs the same study tells whether the file system is the reason"
        }
        _ => "",
    }
}

fn decides(held: &Case, ends: &[Estimate; 2], interaction: &Estimate, published: Option<bool>) -> String {
    let times = |of: &Estimate| {
        format!("{} times as long ({}{} to {})", number(of.value), of_range(of), number(of.low), number(of.high))
    };
    let [sender, receiver] = ends;
    let said = match published {
        Some(true) => "; the published means say so",
        Some(false) => "; by the published means the sender's does",
        None => "",
    };
    format!(
        "{}, {} against {} a call: the receiver's method decides more than the sender's: mmap at the receiver takes {}, at the \
         sender {}; both together {} times what the two alone would give ({}{} to {}){said}",
        Files::of(held).map_or("files", set),
        pages(held),
        bytes(buffer(held)),
        times(receiver),
        times(sender),
        number(interaction.value),
        of_range(interaction),
        number(interaction.low),
        number(interaction.high)
    )
}
