//! Transfers of files in words.

use kelvin_core::catalogue::transfer::{
    BUFFER, ConnectionPolicy, PUBLISHED_BUFFER, ReceiverMethod, ReplyPolicy, SenderMethod, TransferFiles, WINDOW,
    WaitMode,
};
use kelvin_core::units::{bytes, number, value_text};
use kelvin_core::{Case, Estimate, FactorOverFiles, GainOverFiles, TimeChange, TransferClaim, TransferFactor, Unit};

use super::conclusions::range_suffix;

/// A cell: `rw/mmap, per file, 16 pages, 512 B`. What is as usual goes without saying.
pub(crate) fn cell_text(case: &Case) -> String {
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
    let maps = [
        SenderMethod::of(case).is_some_and(SenderMethod::is_mapping),
        ReceiverMethod::of(case).is_some_and(ReceiverMethod::is_mapping),
    ];
    let is_published = buffer_bytes(case) == PUBLISHED_BUFFER;
    let window = (maps.contains(&true) || is_published).then(|| window_pages(case));
    let buffer = maps.contains(&false).then(|| bytes(buffer_bytes(case)));
    window.into_iter().chain(buffer).collect::<Vec<_>>().join(", ")
}

fn window_pages(case: &Case) -> String {
    format!("{} pages", WINDOW.number_in(case).unwrap_or(0))
}

fn buffer_bytes(case: &Case) -> u64 {
    BUFFER.number_in(case).unwrap_or(0)
}

/// A set of files with its sizes.
pub(crate) fn file_set(files: TransferFiles) -> &'static str {
    match files {
        TransferFiles::Small => "10 files of 2.4 kB",
        TransferFiles::One => "1 file of 12 MB",
        TransferFiles::Large => "2 files of 182 MB",
    }
}

fn file_set_named(name: &str) -> &str {
    TransferFiles::ALL.iter().find(|files| files.name() == name).map_or(name, |&files| file_set(files))
}

/// The sentence of a claim.
pub(super) fn claim(claim: &TransferClaim) -> String {
    match claim {
        TransferClaim::Factor { factor, base, other, over, in_memory } => {
            let list: Vec<String> = over.iter().map(over_files_text).collect();
            format!(
                "{}{}: {}{}",
                factor_statement(*factor, base, other),
                files_suffix(*factor, over),
                list.join("; "),
                published_agreement(*factor, over, *in_memory)
            )
        }
        TransferClaim::Gain { over } => {
            let list: Vec<String> = over.iter().map(gain_text).collect();
            format!(
                "what mmap gains over 512 B a call comes from more bytes a call, not from mapping: {}",
                list.join("; ")
            )
        }
        TransferClaim::Ends { held, ends, interaction, published, .. } => {
            deciding_end(held, ends, interaction, *published)
        }
    }
}

/// `1 file of 12 MB 0.40 times as long = 0.17 by calls of 1 MiB x 2.32 by mapping in place of those (published: 0.16)`.
fn gain_text(of: &GainOverFiles) -> String {
    let span =
        |of: &Estimate| format!("{} ({}{} to {})", number(of.value), range_suffix(of), number(of.low), number(of.high));
    let published = of.published.map_or_else(String::new, |ratio| format!("; published {}", number(ratio)));
    format!(
        "{} {} times as long = {} by calls of 1 MiB x {} by mapping in place of those{published}",
        file_set_named(&of.files),
        number(of.whole.value),
        span(&of.by_bytes),
        span(&of.by_mapping)
    )
}

fn factor_statement(factor: TransferFactor, base: &Case, other: &Case) -> String {
    let in_ring = if WaitMode::of(base) == Some(WaitMode::Uring) { ", both in a ring" } else { "" };
    match factor {
        TransferFactor::Mmap => {
            format!(
                "mmap at both ends is faster than read/write, {} against {} a call",
                window_pages(other),
                bytes(buffer_bytes(base))
            )
        }
        TransferFactor::BytesOfACall => format!(
            "read/write at both ends is faster with {} a call than with {}",
            bytes(buffer_bytes(other)),
            bytes(buffer_bytes(base))
        ),
        TransferFactor::Window => format!(
            "mmap at both ends is faster with windows of {} than of {}, {}",
            window_pages(other),
            window_pages(base),
            connection_text(base)
        ),
        TransferFactor::ConnectionForEach => {
            format!("{}, {}: a connection for each file costs time", end_methods(base), call_amounts(base))
        }
        TransferFactor::Replies => "waiting for a reply to each file before the next costs time".into(),
        TransferFactor::Mode => match WaitMode::of(other) {
            Some(WaitMode::Fasync) => format!(
                "{}, {}, {}: O_ASYNC on sockets in the kernel, whose calls block all the same, costs time",
                end_methods(base),
                call_amounts(base),
                connection_text(base)
            ),
            _ => format!("{} in place of calls that block cost time", wait_mode_text(other)),
        },
        TransferFactor::Sender => {
            format!(
                "{} is faster than read/write at the sender{in_ring}",
                SenderMethod::AXIS.word_in(other).unwrap_or("?")
            )
        }
        TransferFactor::Receiver => {
            format!(
                "{} is faster than read/write at the receiver{in_ring}",
                ReceiverMethod::AXIS.word_in(other).unwrap_or("?")
            )
        }
        TransferFactor::Cold => {
            format!(
                "sent by {}, files that are not in memory take longer",
                SenderMethod::AXIS.word_in(other).unwrap_or("?")
            )
        }
    }
}

fn connection_text(case: &Case) -> &'static str {
    match ConnectionPolicy::of(case) {
        Some(ConnectionPolicy::PerFile) => "with a connection for each file",
        _ => "with one connection",
    }
}

fn wait_mode_text(case: &Case) -> &'static str {
    match WaitMode::of(case) {
        Some(WaitMode::Nonblocking) => "calls that do not block, and epoll,",
        Some(WaitMode::Signal) => "calls that do not block, and signals,",
        _ => "requests of a ring, one at a time,",
    }
}

/// `1 file of 12 MB 0.55 times as long (0.50 to 0.61; published 0.16)`.
fn over_files_text(over: &FactorOverFiles) -> String {
    let published = over.published.map_or_else(String::new, |ratio| format!("; published {}", number(ratio)));
    let each = over.each.map_or_else(String::new, |each| format!(", {} each", time_interval(&each)));
    let ratio = &over.ratio;
    let span = format!("({}{} to {}{published})", range_suffix(ratio), number(ratio.low), number(ratio.high));
    let said = match over.change {
        TimeChange::Same => format!("as long {span}"),
        TimeChange::NotKnown => format!("not known {span}"),
        TimeChange::Shorter | TimeChange::Longer => format!("{} times as long {span}", number(ratio.value)),
    };
    format!("{} {said}{each}", file_set_named(&over.files))
}

/// `, with 1 file of 12 MB, and not with 10 files of 2.4 kB`: of which files a claim holds, where it does not hold of all.
fn files_suffix(factor: TransferFactor, over: &[FactorOverFiles]) -> String {
    let claimed = if factor.is_gain() { TimeChange::Shorter } else { TimeChange::Longer };
    let names = |are: fn(TimeChange, TimeChange) -> bool| {
        let names: Vec<&str> =
            over.iter().filter(|one| are(one.change, claimed)).map(|one| file_set_named(&one.files)).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let Some(so) = names(|change, claimed| change == claimed) else { return String::new() };
    let not = names(|change, claimed| change != claimed && change != TimeChange::NotKnown);
    let open = names(|change, _| change == TimeChange::NotKnown);
    let rest = [not.map(|not| format!(", and not with {not}")), open.map(|open| format!(", not known with {open}"))];
    let rest: String = rest.into_iter().flatten().collect();
    if rest.is_empty() { rest } else { format!(", with {so}{rest}") }
}

/// `57.1 us (50.2 to 64.0)`.
fn time_interval(of: &Estimate) -> String {
    let [value, low, high] = [of.value, of.low, of.high].map(|value| value_text(value, Unit::Nanoseconds));
    format!("{value} ({}{low} to {high})", range_suffix(of))
}

/// Whether the published means say the same.
fn published_agreement(factor: TransferFactor, over: &[FactorOverFiles], in_memory: bool) -> String {
    let decided = |one: &&FactorOverFiles| one.change != TimeChange::NotKnown && one.published.is_some();
    let is_unlike = |one: &&FactorOverFiles| {
        one.published.is_some_and(|ratio| TimeChange::from_published_ratio(ratio) != one.change)
    };
    let (decided, unlike): (Vec<&FactorOverFiles>, Vec<&FactorOverFiles>) =
        (over.iter().filter(decided).collect(), over.iter().filter(decided).filter(is_unlike).collect());
    let names =
        |all: &[&FactorOverFiles]| all.iter().map(|one| file_set_named(&one.files)).collect::<Vec<_>>().join(" and ");
    match (decided.len(), unlike.is_empty()) {
        (0, _) => String::new(),
        (_, true) => format!("; the published means say the same of {}", names(&decided)),
        _ => {
            format!("; the published means say otherwise of {}{}", names(&unlike), file_system_hint(factor, in_memory))
        }
    }
}

/// What tells whether the file system is the reason of a difference from the published means, where faults on a file decide.
fn file_system_hint(factor: TransferFactor, in_memory: bool) -> &'static str {
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

fn deciding_end(held: &Case, ends: &[Estimate; 2], interaction: &Estimate, published: Option<bool>) -> String {
    let times = |of: &Estimate| {
        format!("{} times as long ({}{} to {})", number(of.value), range_suffix(of), number(of.low), number(of.high))
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
        TransferFiles::of(held).map_or("files", file_set),
        window_pages(held),
        bytes(buffer_bytes(held)),
        times(receiver),
        times(sender),
        number(interaction.value),
        range_suffix(interaction),
        number(interaction.low),
        number(interaction.high)
    )
}
