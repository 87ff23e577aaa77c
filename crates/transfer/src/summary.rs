//! What both ends say at the end: what was moved, how fast, what limited it, and what was to be expected.

use std::fmt;

use kelvin_model::{Unit, units};
use serde::Serialize;

use crate::bare::Connection;
use crate::carried::Carried;
use crate::chosen::Chosen;
use crate::expected::Expected;
use crate::load::{Load, Storage, Times};
use crate::message::Entry;
use crate::moving::{ReceiveMethod, SendMethod};
use crate::session::is_small;

/// The share of the time from which on something is named as what limited a transfer.
const LIMITING: f64 = 0.6;
/// The share of the waits of both ends from which on round trips explain them.
const EXPLAINED: f64 = 0.5;
/// The share from which on a quota, or other work, is named as what kept an end from running.
const KEPT: f64 = 0.1;
/// The share of segments that were sent again from which on losses may hold a connection back: with Reno one in a thousand keeps some 39
/// segments on their way (Mathis et al. 1997, sqrt(3 / 2p)).
const LOSES: f64 = 0.001;
/// How many times the shortest round trip one takes at least where there is a queue before the link.
const QUEUED: f64 = 1.1;

/// The bytes of files: which were moved, and which need not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Sent.
    pub moved: u64,
    /// Holes, of which only the place is sent.
    pub holes: u64,
    /// There already, from a connection that ended early.
    pub resumed: u64,
}

impl Amount {
    /// So many bytes that were sent.
    pub(crate) fn sent(bytes: u64) -> Self {
        Self { moved: bytes, ..Self::default() }
    }

    /// All of them.
    pub fn whole(&self) -> u64 {
        self.moved.saturating_add(self.holes).saturating_add(self.resumed)
    }

    /// Adds those of another file.
    pub(crate) fn add(&mut self, other: &Self) {
        self.moved = self.moved.saturating_add(other.moved);
        self.holes = self.holes.saturating_add(other.holes);
        self.resumed = self.resumed.saturating_add(other.resumed);
    }
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Files in their place.
    pub files: u64,
    /// Of these, files that went together.
    pub small: u64,
    /// Their bytes.
    pub amount: Amount,
}

impl Moved {
    /// Adds a file that is in its place.
    pub(crate) fn add(&mut self, entry: &Entry, amount: &Amount) {
        self.files += 1;
        self.small += u64::from(is_small(entry));
        self.amount.add(amount);
    }
}

/// What was moved, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Files and bytes in their place.
    pub moved: Moved,
    /// Files that were not moved.
    pub failed: u64,
    /// Nanoseconds from the sender's first action, connecting included, until the receiver had the last byte.
    pub nanoseconds: u64,
    /// Whether digests were compared.
    pub verified: bool,
    /// Whether the bytes of files were encrypted.
    pub encrypted: bool,
    /// Nanoseconds from then until all was flushed to its device, if it was.
    pub flushed: Option<u64>,
    /// Over how many connections blocks of large files could come.
    pub streams: u32,
    /// Why so many, if that was found out.
    pub chosen: Option<Chosen>,
    /// Whether each file had a connection of its own.
    pub connection: Connection,
    /// What the sender did.
    pub sender: Load,
    /// What the receiver did.
    pub receiver: Load,
    /// What the sender's connection carried, if the kernel says.
    pub carried: Option<Carried>,
    /// The rate that was to be expected, where it was long enough to be predicted.
    pub expected: Option<Expected>,
    /// Most bytes that are not on their device yet; nothing where there is none, or it is unknown.
    pub unwritten: Option<u64>,
    /// By what method the bytes of large files were sent, if there were any.
    pub method: Option<SendMethod>,
    /// By what method they were received.
    pub received_by: Option<ReceiveMethod>,
}

/// A part of the way and its share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// What it is, for people and programs.
    pub name: &'static str,
    /// Its share, 0 to 1.
    pub share: f64,
}

/// One end, for words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sender,
    Receiver,
}

/// What may have limited a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// The one that was asked for.
    Asked,
    /// It was full.
    Link,
    /// Both ends waited while a window of their connection, or a buffer, was full.
    Window,
    /// Both ends waited, and neither a link nor a window is known to have been full.
    Waits,
    /// An end waited for what lies under its files.
    Storage(End),
    /// An end ran, or was ready to.
    Cpu(End),
}

impl Summary {
    /// Bytes that were sent per second.
    pub fn rate(&self) -> f64 {
        self.moved.amount.moved as f64 / (self.nanoseconds.max(1) as f64 / 1e9)
    }

    /// Which bytes were not sent, in words.
    fn of_which(&self) -> String {
        let Amount { holes, resumed, .. } = self.moved.amount;
        let some = |bytes: u64, what| (bytes > 0).then(|| format!("{} {what}", units::bytes(bytes)));
        let parts: Vec<String> =
            [some(resumed, "there from before"), some(holes, "of holes")].into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

    fn end(&self, end: End) -> &Load {
        match end {
            End::Sender => &self.sender,
            End::Receiver => &self.receiver,
        }
    }

    /// A share of the whole time, flushing included.
    fn share(&self, nanoseconds: u64) -> f64 {
        let whole = self.nanoseconds.saturating_add(self.flushed.unwrap_or_default());
        (nanoseconds as f64 / whole.max(1) as f64).min(1.0)
    }

    /// How busy everything was that may have limited it.
    fn limits(&self) -> [(Limit, f64); 8] {
        let waited = |end| {
            let Times { file_wait, sync, .. } = self.end(end).times;
            // A call that did not run because others did has not waited for a disk.
            self.share(file_wait.saturating_add(sync).saturating_sub(self.end(end).ready))
        };
        let ran = |end| self.share(self.end(end).cpu.saturating_add(self.end(end).ready));
        let asked = self.share(self.sender.times.limit);
        // What an end did neither of, it waited for the connection: for the other end, or, if that waited too, for what is between them.
        let sender = 1.0 - waited(End::Sender) - ran(End::Sender) - asked;
        let receiver = 1.0 - waited(End::Receiver) - ran(End::Receiver);
        let both = sender.min(receiver).max(0.0);
        let (link, window) = (self.link(both), self.held().min(both));
        [
            (Limit::Storage(End::Sender), waited(End::Sender)),
            (Limit::Cpu(End::Sender), ran(End::Sender)),
            (Limit::Asked, asked),
            (Limit::Link, link),
            (Limit::Window, window),
            (Limit::Waits, (both - link.max(window)).max(0.0)),
            (Limit::Cpu(End::Receiver), ran(End::Receiver)),
            (Limit::Storage(End::Receiver), waited(End::Receiver)),
        ]
    }

    /// For which share of the time the link was full, where both ends waited for this share.
    fn link(&self, both: f64) -> f64 {
        let Some(carried) = self.carried else { return 0.0 };
        if self.streams > 1 {
            // Of one of several is not known what it could carry alone; that the link can hold one back must have been seen.
            let filled = self.share(carried.busy) - self.held();
            return if carried.most.is_some() { both.min(filled.max(0.0)) } else { 0.0 };
        }
        // An end that works meanwhile does not make it less full, unless it never waits for it.
        if both >= KEPT { self.full() } else { self.full().min(both) }
    }

    /// For which share of the time the link was full, by what it carried and can carry.
    fn full(&self) -> f64 {
        let rate = self.link_rate().unwrap_or_default();
        // Other streams may have carried some of it, which were no faster and are closed.
        let bytes = self.carried.unwrap_or_default().bytes.max(self.moved.amount.moved);
        if rate == 0 { 0.0 } else { self.share((bytes as f64 * 1e9 / rate as f64) as u64) }
    }

    /// Bytes a second that the link can, by moments in which nothing else held it back.
    fn link_rate(&self) -> Option<u64> {
        self.carried.and_then(|carried| carried.most)
    }

    /// For which share of the time a window or a buffer was full: of several connections, which are busy at the same time, on average.
    fn held(&self) -> f64 {
        self.carried.map_or(0.0, |Carried { by_window, by_buffer, busy, .. }| {
            let held = by_window.saturating_add(by_buffer);
            let (all, busy) = (self.share(held), self.share(busy) * held as f64 / busy.max(1) as f64);
            if busy > 0.0 { all.min(busy) } else { all }
        })
    }

    /// Whether its rate can be predicted from what the stages of both ends cost, and from what the link can, if that held it back.
    pub(crate) fn is_predictable(&self) -> bool {
        let is_link_known = self.carried.is_some_and(|carried| carried.most.is_some());
        match self.busiest().0 {
            Limit::Link => is_link_known,
            Limit::Window | Limit::Waits => false,
            Limit::Asked | Limit::Storage(_) | Limit::Cpu(_) => true,
        }
    }

    /// The busiest of them.
    fn busiest(&self) -> (Limit, f64) {
        let [first, rest @ ..] = self.limits();
        rest.into_iter().fold(first, |most, limit| if limit.1 > most.1 { limit } else { most })
    }

    /// How busy everything was that may have limited it, from the source to the target.
    pub fn utilisation(&self) -> [Share; 8] {
        self.limits().map(|(limit, share)| Share { name: limit.name(), share })
    }

    /// The time of all stages: of both ends, waiting for the other end included.
    pub fn stages(&self) -> [Share; 10] {
        let (sender, receiver) = (&self.sender.times, &self.receiver.times);
        [
            ("reading at the sender", sender.file),
            ("hashing at the sender", sender.verify),
            ("encrypting at the sender", sender.cipher),
            ("sending at the sender", sender.connection),
            ("the limit that was set", sender.limit),
            ("receiving at the receiver", receiver.connection),
            ("decrypting at the receiver", receiver.cipher),
            ("hashing at the receiver", receiver.verify),
            ("writing at the receiver", receiver.file),
            ("flushing at the receiver", receiver.sync),
        ]
        .map(|(name, nanoseconds)| Share { name, share: self.share(nanoseconds) })
    }

    /// What limited it, in words.
    fn limited(&self) -> String {
        let (limit, share) = self.busiest();
        let most = percent(share);
        if share < LIMITING {
            return match limit {
                Limit::Waits => format!("limited by no part alone: both ends waited for each other {most}"),
                _ => format!("limited by no part alone: {} was the busiest, {most}", limit.words(self)),
            };
        }
        match limit {
            Limit::Asked => format!("held back by the limit that was set, {most}"),
            Limit::Link => self.by_link(&most),
            Limit::Window => format!("limited by {}{}, full {most}", limit.words(self), self.of_trips()),
            Limit::Waits => self.waits(share),
            Limit::Storage(_) => format!("limited by {}, which was waited for {most}", limit.words(self)),
            Limit::Cpu(end) => format!("limited by {}", self.processor(end)),
        }
    }

    /// The link held it back for this part of the time.
    fn by_link(&self, most: &str) -> String {
        let full = if self.streams > 1 {
            format!("limited by the link, for which both ends waited {most}")
        } else {
            let rate = units::plain(self.link_rate().unwrap_or_default() as f64, Unit::BytesPerSecond);
            format!("limited by the link, which was full {most} at {rate}")
        };
        match self.lost() {
            Some(lost) => self.by_losses(most).unwrap_or_else(|| format!("{full}; {lost}")),
            None => full,
        }
    }

    /// How much was lost, in words, if that is enough to hold a connection back.
    fn lost(&self) -> Option<String> {
        let Carried { segments, retransmitted, .. } = self.carried?;
        let share = retransmitted as f64 / segments.max(1) as f64;
        (share >= LOSES).then(|| format!("{:.2} % of the segments were sent again", 100.0 * share.min(1.0)))
    }

    /// That losses held it back for this part of the time, where there was no queue before the link.
    fn by_losses(&self, most: &str) -> Option<String> {
        let Carried { round_trip, of_link, .. } = self.carried?;
        let is_short = of_link > 0 && (of_link as f64) < QUEUED * round_trip as f64;
        let lost = self.lost().filter(|_| is_short)?;
        let [usual, least] = [of_link, round_trip].map(|trip| units::seconds(trip as f64 / 1e9));
        Some(format!(
            "limited by losses on the link, or by a limit of its rate that drops what is above it, {most}: {lost}, and round trips took \
             {usual}, no longer than without a queue ({least})"
        ))
    }

    /// Both ends waited for this share of the time, and nothing is known to have been full.
    fn waits(&self, share: f64) -> String {
        let Some(carried) = self.carried else {
            return format!(
                "limited by the connection, for which both ends waited {}, and of which nothing is known",
                percent(share)
            );
        };
        let Carried { answers, round_trip, .. } = carried;
        let link = match self.link_rate() {
            Some(_) => format!("the link was idle {}", percent((1.0 - self.full()).max(0.0))),
            None => "the rate of the link is not known".to_owned(),
        };
        if self.share(answers.saturating_mul(round_trip)) >= EXPLAINED * share {
            let trip = units::seconds(round_trip as f64 / 1e9);
            return format!(
                "limited by round trips: the sender waited for {answers} answers, each of which takes {trip} or more; {link}"
            );
        }
        // Of a connection that had bytes to send all the time.
        if self.share(carried.busy) - self.held() >= share - KEPT
            && let Some(losses) = self.by_losses(&percent(share))
        {
            return losses;
        }
        let answers = percent(self.share(carried.waited));
        format!(
            "what limited it is not known: both ends waited {}, the sender for answers {answers}, and {link}; kelvin study peer would \
             measure the link alone",
            percent(share)
        )
    }

    /// How large a window or a buffer was that was full, and over which round trips, as far as that is known.
    fn of_trips(&self) -> String {
        let carried = self.carried.unwrap_or_default();
        let bytes = if carried.is_of_buffer() { carried.buffer } else { carried.window };
        let trip =
            (carried.round_trip > 0).then(|| format!("over {}", units::seconds(carried.round_trip as f64 / 1e9)));
        let bytes = (bytes > 0).then(|| units::plain(bytes as f64, Unit::Bytes));
        match (bytes, trip) {
            (Some(bytes), Some(trip)) => format!(": {bytes} {trip}"),
            (Some(bytes), None) => format!(": {bytes}"),
            (None, Some(trip)) => format!(", {trip}"),
            (None, None) => String::new(),
        }
    }

    /// An end that runs, or would if it could.
    fn processor(&self, end: End) -> String {
        let Load { cpu, ready, throttled, .. } = *self.end(end);
        let throttled = self.share(throttled.min(ready));
        let others = (self.share(ready) - throttled).max(0.0);
        if throttled >= KEPT && throttled >= others {
            return format!("the CPU quota of the {end}, which kept it from running {}", percent(throttled));
        }
        if others >= KEPT {
            return format!("the CPU of the {end}, which other work had {}", percent(others));
        }
        let (stage, _) = self.most_work(end);
        format!("the CPU of the {end}, busy {}, most of it {stage}", percent(self.share(cpu)))
    }

    /// The stage of an end that took its CPU most.
    fn most_work(&self, end: End) -> (&'static str, u64) {
        let Load { cpu, times, .. } = self.end(end);
        let others = [times.verify, times.cipher, times.file.saturating_sub(times.file_wait)];
        // Waiting included, its time says little: what is left of the CPU's is its own.
        let connection = others.iter().fold(*cpu, |left, time| left.saturating_sub(*time)).min(times.connection);
        let names = match end {
            End::Sender => ["hashing", "encrypting", "reading files", "sending"],
            End::Receiver => ["hashing", "decrypting", "writing files", "receiving"],
        };
        let [verify, cipher, file] = others;
        let stages = [verify, cipher, file, connection];
        names.into_iter().zip(stages).fold((names[0], 0), |most, stage| if stage.1 > most.1 { stage } else { most })
    }
}

/// From a rate to another one, with two digits, which is more than is known of them.
fn range(expected: &Expected) -> String {
    let [low, high] = [expected.low, expected.high].map(|rate| {
        let digits = 10_f64.powi((rate.max(1) as f64).log10() as i32 - 1);
        units::plain((rate as f64 / digits).round() * digits, Unit::BytesPerSecond)
    });
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, unit)), Some((_, same))) if unit == same => format!("{figure} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// A share of the time, in words.
fn percent(share: f64) -> String {
    format!("{:.0} % of the time", (share * 100.0).round())
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

impl Limit {
    /// For programs.
    fn name(self) -> &'static str {
        match self {
            Self::Asked => "the limit that was set",
            Self::Link => "the link",
            Self::Window => "the window of the connection",
            Self::Waits => "waiting for each other",
            Self::Storage(End::Sender) => "the source's disk",
            Self::Storage(End::Receiver) => "the target's disk",
            Self::Cpu(End::Sender) => "the CPU of the sender",
            Self::Cpu(End::Receiver) => "the CPU of the receiver",
        }
    }

    /// For people, who want to know what it was.
    fn words(self, summary: &Summary) -> &'static str {
        if let (Self::Window, Some(carried)) = (self, summary.carried) {
            return if carried.is_of_buffer() { "the sender's buffer" } else { "the receiver's window" };
        }
        let Self::Storage(end) = self else { return self.name() };
        match (end, summary.end(end).storage) {
            (End::Sender, Storage::Memory) => "the source's file system",
            (End::Receiver, Storage::Memory) => "the target's file system",
            (End::Sender, Storage::Served) => "whoever serves the source's file system",
            (End::Receiver, Storage::Served) => "whoever serves the target's file system",
            (End::Sender, Storage::Pipe) => "what feeds the sender's standard input",
            (End::Receiver, Storage::Pipe) => "what reads the receiver's standard output",
            _ => self.name(),
        }
    }
}

/// Why it was this number of streams, for programs.
#[derive(Clone, Debug, Serialize)]
struct Why {
    times_one: f64,
    no_faster: Option<u32>,
    words: String,
}

impl From<Chosen> for Why {
    fn from(chosen: Chosen) -> Self {
        Self { times_one: chosen.times_one(), no_faster: chosen.no_faster, words: chosen.to_string() }
    }
}

/// A summary as data, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    files: u64,
    bytes: u64,
    holes: u64,
    resumed: u64,
    failed: u64,
    seconds: f64,
    bytes_per_second: f64,
    expected_bytes_per_second: Option<Expected>,
    verified: bool,
    encrypted: bool,
    synced: bool,
    streams: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<Why>,
    connection: &'static str,
    seconds_flushing: Option<f64>,
    unwritten: Option<u64>,
    method: Option<&'static str>,
    received_by: Option<&'static str>,
    utilisation: [Share; 8],
    #[serde(skip_serializing_if = "Option::is_none")]
    carried: Option<Carried>,
    stages: [Share; 10],
    sentence: String,
}

impl From<&Summary> for Record {
    fn from(summary: &Summary) -> Self {
        let Summary { failed, verified, encrypted, flushed, unwritten, expected, streams, chosen, connection, .. } =
            *summary;
        let Moved { files, amount, .. } = summary.moved;
        Self {
            files,
            bytes: amount.whole(),
            holes: amount.holes,
            resumed: amount.resumed,
            failed,
            seconds: summary.nanoseconds as f64 / 1e9,
            bytes_per_second: summary.rate(),
            expected_bytes_per_second: expected,
            verified,
            encrypted,
            synced: flushed.is_some(),
            streams,
            chosen: chosen.map(Why::from),
            connection: connection.word(),
            seconds_flushing: flushed.map(|flushed| flushed as f64 / 1e9),
            unwritten,
            method: summary.method.map(SendMethod::word),
            received_by: summary.received_by.map(ReceiveMethod::word),
            utilisation: summary.utilisation(),
            carried: summary.carried,
            stages: summary.stages(),
            sentence: summary.to_string(),
        }
    }
}

impl Summary {
    /// Over what; one connection is not worth a word, unless it was compared with more.
    fn over(&self) -> String {
        let why = self.chosen.map_or_else(String::new, |chosen| format!(" ({chosen})"));
        match (self.connection, self.streams) {
            (Connection::PerFile, _) => ", over a connection for each file".into(),
            (Connection::Persistent, 1) if self.chosen.is_none() => String::new(),
            (Connection::Persistent, 1) => format!(", over one stream{why}"),
            (Connection::Persistent, streams) => format!(", over {streams} streams{why}"),
        }
    }

    /// By what methods; the usual ones are not worth a word.
    fn by_methods(&self) -> String {
        let sent = self.method.filter(|method| *method != SendMethod::ReadWrite);
        let received = self.received_by.filter(|method| *method != ReceiveMethod::ReadWrite);
        let sent = sent.map_or_else(String::new, |method| format!(", by {method}"));
        received.map_or(sent.clone(), |method| format!("{sent}, received by {method}"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { files, amount, .. } = self.moved;
        if files == 0 {
            return out.write_str("moved nothing");
        }
        write!(
            out,
            "moved {}, {}{}, in {} from connecting to the last byte: {}",
            units::files(files),
            units::bytes(amount.whole()),
            self.of_which(),
            units::seconds(self.nanoseconds as f64 / 1e9),
            units::plain(self.rate(), Unit::BytesPerSecond),
        )?;
        if let Some(expected) = self.expected {
            write!(out, " ({} predicted)", range(&expected))?;
        }
        write!(
            out,
            "{}, {}, {}{}; {}",
            self.over(),
            if self.encrypted { "encrypted" } else { "not encrypted" },
            if self.verified { "verified" } else { "not verified" },
            self.by_methods(),
            self.limited(),
        )?;
        if let Some(flushed) = self.flushed {
            write!(out, "; flushed to the target's disk in {} more", units::seconds(flushed as f64 / 1e9))?;
        }
        match self.unwritten {
            Some(bytes) if bytes > 0 => write!(out, "; up to {} not yet on the target's disk", units::bytes(bytes)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousandths of the time of a transfer of 2 s.
    const fn part(thousandths: u64) -> u64 {
        thousandths * 2_000_000
    }

    /// One end: its CPU time, and what it waited for its files.
    fn end(cpu: u64, file_wait: u64) -> Load {
        let times = Times { file_wait: part(file_wait), file: part(file_wait), ..Times::default() };
        Load { cpu: part(cpu), times, ..Load::default() }
    }

    fn summary(sender: Load, receiver: Load) -> Summary {
        Summary {
            moved: Moved { files: 1, small: 0, amount: Amount::sent(1_000_000_000) },
            failed: 0,
            nanoseconds: part(1000),
            verified: true,
            encrypted: true,
            flushed: None,
            streams: 1,
            chosen: None,
            connection: Connection::Persistent,
            sender,
            receiver,
            carried: None,
            expected: None,
            unwritten: None,
            method: None,
            received_by: None,
        }
    }

    fn limited(sender: Load, receiver: Load) -> String {
        summary(sender, receiver).limited()
    }

    #[test]
    fn what_limits_is_named_and_waiting_for_it_is_not() {
        let idle = end(100, 0);
        assert_eq!(limited(end(90, 910), idle), "limited by the source's disk, which was waited for 91 % of the time");
        assert_eq!(limited(idle, end(50, 900)), "limited by the target's disk, which was waited for 90 % of the time");
        let flushing = Load { times: Times { sync: part(800), ..Times::default() }, ..idle };
        assert!(limited(idle, flushing).starts_with("limited by the target's disk, "));
        let mostly = Summary { flushed: Some(part(1500)), ..summary(idle, end(900, 0)) };
        let flushing = Times { sync: part(1500), ..Times::default() };
        let mostly = Summary { receiver: Load { times: flushing, ..mostly.receiver }, ..mostly };
        assert_eq!(mostly.limited(), "limited by the target's disk, which was waited for 60 % of the time");
        assert!(mostly.to_string().ends_with("; flushed to the target's disk in 3.00 s more"), "{mostly}");
        let asked = Load { times: Times { limit: part(930), ..Times::default() }, ..end(50, 0) };
        assert_eq!(limited(asked, idle), "held back by the limit that was set, 93 % of the time");
    }

    /// Ends that wait 90 % of 2 s, in which the connection carried as much as at 10 MB/s takes so many thousandths of that.
    fn waiting(full: u64, carried: Carried) -> Summary {
        let bytes = part(full) / 100;
        let moved = Moved { files: 1, small: 0, amount: Amount::sent(bytes / 2) };
        Summary { carried: Some(Carried { bytes, ..carried }), moved, ..summary(end(100, 0), end(100, 0)) }
    }

    const RATE: u64 = 10_000_000;

    #[test]
    fn a_full_link_is_told_from_an_idle_one() {
        let known = Carried { most: Some(RATE), ..Carried::default() };
        let full = waiting(970, known);
        assert_eq!(full.limited(), "limited by the link, which was full 97 % of the time at 10.0 MB/s");
        // An end that works meanwhile does not make it less full; one that never waits for it is the limit.
        let works = Summary { receiver: end(550, 0), ..full };
        assert_eq!(works.limited(), full.limited());
        let busy = Summary { receiver: end(970, 0), ..full };
        assert!(busy.limited().starts_with("limited by the CPU of the receiver, "), "{}", busy.limited());
        let idle = waiting(200, Carried { waited: part(780), answers: 2, round_trip: 50_000, ..known });
        assert_eq!(
            idle.limited(),
            "what limited it is not known: both ends waited 70 % of the time, the sender for answers 78 % of the time, and the link was idle \
             80 % of the time; kelvin study peer would measure the link alone"
        );
        assert!(full.is_predictable() && !idle.is_predictable());
        // Another stream, which was no faster, has carried some of it.
        let moved = Moved { amount: Amount::sent(part(970) / 100), ..full.moved };
        let shared = Summary { moved, ..waiting(500, known) };
        assert_eq!(shared.limited(), full.limited());
        let half = waiting(500, known);
        assert!(
            half.limited().starts_with("limited by no part alone: the link was the busiest, 50 %"),
            "{}",
            half.limited()
        );
    }

    #[test]
    fn losses_without_a_queue_are_told_from_a_full_link() {
        let known = Carried { most: Some(RATE), segments: 5000, round_trip: 40_000_000, ..Carried::default() };
        let of = |retransmitted, of_link| waiting(970, Carried { retransmitted, of_link, ..known }).limited();
        let full = "limited by the link, which was full 97 % of the time at 10.0 MB/s";
        assert_eq!(of(4, 41_000_000), full);
        assert_eq!(of(60, 55_000_000), format!("{full}; 1.20 % of the segments were sent again"));
        assert_eq!(
            of(60, 41_000_000),
            "limited by losses on the link, or by a limit of its rate that drops what is above it, 97 % of the time: 1.20 % of the segments \
             were sent again, and round trips took 41.0 ms, no longer than without a queue (40.0 ms)"
        );
        // Its rate is not known, since it went up and down.
        let unknown = Carried { most: None, retransmitted: 60, of_link: 41_000_000, busy: part(950), ..known };
        assert!(
            waiting(970, unknown).limited().starts_with("limited by losses on the link, or by a limit of its rate ")
        );
        let rarely = waiting(970, Carried { busy: part(300), ..unknown }).limited();
        assert!(rarely.starts_with("what limited it is not known: "), "{rarely}");
    }

    #[test]
    fn what_a_link_can_is_not_known_without_a_moment_that_shows_it() {
        let short = waiting(800, Carried::default());
        let words = "what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 % of the time, and the rate \
                     of the link is not known; kelvin study peer would measure the link alone";
        assert_eq!(short.limited(), words);
        assert!(!short.is_predictable());
        // An end that always works is the limit whatever the link can.
        let slow = Summary { receiver: end(900, 0), ..waiting(1000, Carried::default()) };
        assert!(slow.limited().starts_with("limited by the CPU of the receiver, "), "{}", slow.limited());
    }

    #[test]
    fn waits_for_answers_are_round_trips_where_these_take_as_long() {
        let known =
            Carried { answers: 40, round_trip: part(20), waited: part(850), most: Some(RATE), ..Carried::default() };
        assert_eq!(
            waiting(100, known).limited(),
            "limited by round trips: the sender waited for 40 answers, each of which takes 40.0 ms or more; the link was idle 90 % of \
             the time"
        );
        let unknown = summary(end(100, 0), end(100, 0));
        assert_eq!(
            unknown.limited(),
            "limited by the connection, for which both ends waited 90 % of the time, and of which nothing is known"
        );
        assert!(!unknown.is_predictable());
    }

    #[test]
    fn a_window_or_a_buffer_that_is_full_is_named_where_both_ends_wait() {
        let known = Carried { round_trip: 40_000_000, busy: part(990), ..Carried::default() };
        let window = Carried { by_window: part(850), window: 4 << 20, ..known };
        let words = "limited by the receiver's window: 4.00 MiB over 40.0 ms, full 85 % of the time";
        assert_eq!(waiting(300, window).limited(), words);
        // What it lets through is not what the link can.
        let window = waiting(990, window);
        assert_eq!(window.limited(), words);
        let older = waiting(990, Carried { by_window: part(850), ..known });
        assert_eq!(older.limited(), "limited by the receiver's window, over 40.0 ms, full 85 % of the time");
        let buffer = waiting(300, Carried { by_buffer: part(700), by_window: part(100), buffer: 200 << 10, ..known });
        assert_eq!(buffer.limited(), "limited by the sender's buffer: 200 KiB over 40.0 ms, full 80 % of the time");
        // A receiver that does not read fills it as well.
        let slow = Summary { receiver: end(50, 900), ..window };
        assert!(slow.limited().starts_with("limited by the target's disk, "), "{}", slow.limited());
    }

    #[test]
    fn of_several_streams_the_link_is_what_the_first_one_waited_for() {
        let several =
            Summary { streams: 4, ..waiting(250, Carried { busy: part(950), most: Some(RATE), ..Carried::default() }) };
        assert_eq!(several.limited(), "limited by the link, for which both ends waited 90 % of the time");
        // All of them are busy at once, and a window holds each back for a fifth of that.
        let carried = Carried { busy: 4 * part(950), by_window: 4 * part(190), most: Some(RATE), ..Carried::default() };
        let several = Summary { streams: 4, ..waiting(250, carried) };
        assert!((several.held() - 0.2).abs() < 1e-9, "{}", several.held());
        assert!(several.limited().starts_with("limited by the link, "), "{}", several.limited());
        // What holds neither back need not be the link, where that was never seen to.
        let unseen = Summary { streams: 4, ..waiting(250, Carried { busy: part(950), ..Carried::default() }) };
        assert!(
            unseen.limited().starts_with(
                "what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 %"
            ) && unseen.limited().contains("and the rate of the link is not known; "),
            "{}",
            unseen.limited()
        );
    }

    #[test]
    fn an_end_that_runs_is_told_from_one_that_would() {
        let idle = end(400, 0);
        let times = |times: [u64; 4]| {
            let [file, verify, cipher, connection] = times.map(part);
            Times { file, verify, cipher, connection, ..Times::default() }
        };
        let busy = Load { times: times([200, 300, 250, 250]), ..end(970, 0) };
        assert_eq!(limited(busy, idle), "limited by the CPU of the sender, busy 97 % of the time, most of it hashing");
        let busy = Load { times: times([200, 100, 0, 700]), ..end(970, 0) };
        assert_eq!(
            limited(idle, busy),
            "limited by the CPU of the receiver, busy 97 % of the time, most of it receiving"
        );
        let kept = Load { ready: part(550), throttled: part(700), ..end(400, 0) };
        assert_eq!(
            limited(kept, idle),
            "limited by the CPU quota of the sender, which kept it from running 55 % of the time"
        );
        let crowded = Load { ready: part(500), ..end(450, 300) };
        assert_eq!(limited(idle, crowded), "limited by the CPU of the receiver, which other work had 50 % of the time");
    }

    #[test]
    fn what_lies_under_the_files_has_its_own_words() {
        let of = |storage| {
            let waits = Load { storage, ..end(50, 900) };
            limited(end(100, 0), waits)
        };
        assert!(of(Storage::Pipe).starts_with("limited by what reads the receiver's standard output, which was"));
        assert!(of(Storage::Served).starts_with("limited by whoever serves the target's file system, "));
    }

    #[test]
    fn the_sentence_says_what_how_fast_and_what_limited_it() {
        let slow = summary(end(300, 0), end(50, 900));
        assert_eq!(
            slow.to_string(),
            "moved 1 file, 954 MiB, in 2.00 s from connecting to the last byte: 500 MB/s, encrypted, verified; limited by the \
             target's disk, which was waited for 90 % of the time"
        );
        let expected = Some(Expected { low: 1_000_000_000, rate: 1_500_000_000, high: 1_800_000_000 });
        let method = Some(SendMethod::Sendfile);
        let more = Summary { expected, unwritten: Some(700 << 20), method, ..slow }.to_string();
        assert!(more.contains(", encrypted, verified, by sendfile; limited by "), "{more}");
        let received_by = Some(ReceiveMethod::Splice);
        let both = Summary { method, received_by, ..slow }.to_string();
        assert!(both.contains(", verified, by sendfile, received by splice; limited by "), "{both}");
        assert!(more.contains(": 500 MB/s (1.00 to 1.80 GB/s predicted), encrypted, "), "{more}");
        assert_eq!(range(&Expected { low: 999_900_000, rate: 1, high: 123_456 }), "1.00 GB/s to 120 kB/s");
        let split = Summary { streams: 4, ..slow }.to_string();
        assert!(split.contains(": 500 MB/s, over 4 streams, encrypted, "), "{split}");
        let chosen = Some(Chosen { streams: 4, thousandths: 3120, no_faster: Some(8) });
        let faster = Summary { streams: 4, chosen, ..slow }.to_string();
        assert!(faster.contains(", over 4 streams (3.1 times the rate of one, 8 no faster), encrypted, "), "{faster}");
        let chosen = Some(Chosen { streams: 1, thousandths: 1000, no_faster: Some(2) });
        let one = Summary { chosen, ..slow }.to_string();
        assert!(one.contains(": 500 MB/s, over one stream (2 were no faster), encrypted, "), "{one}");
        let apart = Summary { connection: Connection::PerFile, ..slow }.to_string();
        assert!(apart.contains(": 500 MB/s, over a connection for each file, encrypted, "), "{apart}");
        assert!(more.ends_with(" % of the time; up to 700 MiB not yet on the target's disk"), "{more}");
        let amount = Amount { holes: 1 << 20, resumed: 3 << 20, moved: 4 << 20 };
        let partly = Summary { moved: Moved { amount, ..slow.moved }, ..slow };
        assert!(
            partly.to_string().starts_with("moved 1 file, 8 MiB (3 MiB there from before, 1 MiB of holes), in 2.00 s")
        );
        let moved = Moved { files: 3, ..slow.moved };
        let even = Summary { moved, verified: false, ..summary(end(500, 0), end(550, 0)) }.to_string();
        let words = "not verified; limited by no part alone: the CPU of the receiver was the busiest, 55 % of the time";
        assert!(even.ends_with(words) && even.starts_with("moved 3 files, "), "{even}");
    }

    /// The other end's figures are its own, and may be anything.
    #[test]
    fn no_figures_break_it() {
        let all = u64::MAX;
        let times =
            Times { file: all, file_wait: all, verify: all, cipher: all, connection: all, sync: all, limit: all };
        let most = Load { times, cpu: all, ready: all, throttled: all, storage: Storage::Disk };
        for load in [Load::default(), most] {
            for (most, streams) in [(None, 1), (Some(0), 1), (Some(all), 2)] {
                let carried = Carried {
                    bytes: all,
                    busy: all,
                    by_window: all,
                    by_buffer: all,
                    window: all,
                    buffer: all,
                    most,
                    round_trip: all,
                    of_link: all,
                    segments: all,
                    retransmitted: all,
                    answers: all,
                    waited: all,
                };
                let odd = Summary {
                    nanoseconds: 0,
                    sender: load,
                    receiver: load,
                    carried: Some(carried),
                    streams,
                    ..summary(end(0, 0), end(0, 0))
                };
                let shares = odd.stages().into_iter().chain(odd.utilisation());
                assert!(shares.into_iter().all(|share| (0.0..=1.0).contains(&share.share)), "{odd}");
            }
        }
    }
}
