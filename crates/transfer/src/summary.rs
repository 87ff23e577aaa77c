//! What both ends say at the end: what was moved, how fast, what limited it, and what was to be expected.

use std::fmt;

use kelvin_core::{Unit, units};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::datapath::{ReceiveMethod, SendMethod};
use crate::link_usage::LinkUsage;
use crate::message::StreamChoice;
use crate::message::{FileEntry, ReceiverReport, SenderReport};
use crate::rate_prediction::RatePrediction;
use crate::raw_protocol::ConnectionLifetime;
use crate::session_settings::SessionSettings;
use crate::stage_times::{EndLoad, StageTimes, StorageKind};

/// The share of the time from which on something is named as what limited a transfer.
const LIMITING_SHARE: f64 = 0.6;
/// The share of the waits of both ends from which on round trips explain them.
const EXPLAINED_SHARE: f64 = 0.5;
/// The share from which on a quota, or other work, is named as what kept an end from running.
const THROTTLED_SHARE: f64 = 0.1;
/// The share of segments that were sent again from which on losses may hold a connection back: with Reno one in a thousand keeps some 39
/// segments on their way (Mathis et al. 1997, sqrt(3 / 2p)).
const LOSS_SHARE: f64 = 0.001;
/// How many times the shortest round trip one takes at least where there is a queue before the link.
const QUEUEING_FACTOR: f64 = 1.1;

/// The bytes of files: which were moved, and which need not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Sent.
    pub moved: u64,
    /// Holes, of which only the place is sent.
    pub holes: u64,
    /// There already, from a connection that ended early.
    pub resumed: u64,
}

impl ByteCounts {
    /// This many bytes that were sent.
    pub(crate) fn from_sent(bytes: u64) -> Self {
        Self { moved: bytes, ..Self::default() }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.moved.saturating_add(self.holes).saturating_add(self.resumed)
    }

    /// Adds those of another file.
    pub(crate) fn add(&mut self, more: &Self) {
        self.moved = self.moved.saturating_add(more.moved);
        self.holes = self.holes.saturating_add(more.holes);
        self.resumed = self.resumed.saturating_add(more.resumed);
    }
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedFiles {
    /// Files in their place.
    pub files: u64,
    /// Of these, files that went together.
    pub small: u64,
    /// Their bytes.
    pub amount: ByteCounts,
}

impl MovedFiles {
    /// Adds a file that is in its place.
    pub(crate) fn add(&mut self, entry: &FileEntry, amount: &ByteCounts) {
        self.files += 1;
        self.small += u64::from(entry.is_small());
        self.amount.add(amount);
    }
}

/// What was moved, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSummary {
    /// Files and bytes in their place.
    pub moved: MovedFiles,
    /// What held for all of them.
    pub settings: SessionSettings,
    /// Over how many connections blocks of large files could come.
    pub streams: u32,
    /// What the sender measured.
    pub sent: SenderReport,
    /// What the receiver measured.
    pub received: ReceiverReport,
}

/// A part of the way and its share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NamedShare {
    /// What it is, for people and programs.
    pub name: &'static str,
    /// Its share, 0 to 1.
    pub share: f64,
}

/// One end, for words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferEnd {
    Sender,
    Receiver,
}

/// What may have limited a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitingFactor {
    /// The one that was asked for.
    RateLimit,
    /// It was full.
    Link,
    /// Both ends waited while a window of their connection, or a buffer, was full.
    Window,
    /// Both ends waited, and neither a link nor a window is known to have been full.
    RoundTrips,
    /// An end waited for what lies under its files.
    Storage(TransferEnd),
    /// An end ran, or was ready to.
    Cpu(TransferEnd),
}

impl TransferSummary {
    /// Nanoseconds from the last byte until all was flushed to its device, if it was.
    fn flushed(&self) -> Option<u64> {
        self.settings.sync.then_some(self.received.since)
    }

    /// Bytes that were sent per second.
    pub fn rate(&self) -> f64 {
        self.moved.amount.moved as f64 / seconds(self.sent.nanoseconds.max(1))
    }

    /// Which bytes were not sent, in words.
    fn unsent_text(&self) -> String {
        let ByteCounts { holes, resumed, .. } = self.moved.amount;
        let some = |bytes: u64, what| (bytes > 0).then(|| format!("{} {what}", units::bytes(bytes)));
        let parts: Vec<String> =
            [some(resumed, "there from before"), some(holes, "of holes")].into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

    fn end_load(&self, end: TransferEnd) -> &EndLoad {
        match end {
            TransferEnd::Sender => &self.sent.load,
            TransferEnd::Receiver => &self.received.load,
        }
    }

    /// A share of the whole time, flushing included.
    fn share(&self, nanoseconds: u64) -> f64 {
        let total = self.sent.nanoseconds.saturating_add(self.flushed().unwrap_or_default());
        (nanoseconds as f64 / total.max(1) as f64).min(1.0)
    }

    /// How busy everything was that may have limited it.
    fn limiting_shares(&self) -> [(LimitingFactor, f64); 8] {
        let waited = |end| {
            let StageTimes { file_wait, sync, .. } = self.end_load(end).times;
            // A call that did not run because others did has not waited for a disk.
            self.share(file_wait.saturating_add(sync).saturating_sub(self.end_load(end).ready))
        };
        let ran = |end| self.share(self.end_load(end).cpu.saturating_add(self.end_load(end).ready));
        let asked = self.share(self.sent.load.times.limit);
        // What an end did neither of, it waited for the connection: for the other end, or, if that waited too, for what is between them.
        let sender = 1.0 - waited(TransferEnd::Sender) - ran(TransferEnd::Sender) - asked;
        let receiver = 1.0 - waited(TransferEnd::Receiver) - ran(TransferEnd::Receiver);
        let both = sender.min(receiver).max(0.0);
        let (link, window) = (self.link_share(both), self.window_full_share().min(both));
        [
            (LimitingFactor::Storage(TransferEnd::Sender), waited(TransferEnd::Sender)),
            (LimitingFactor::Cpu(TransferEnd::Sender), ran(TransferEnd::Sender)),
            (LimitingFactor::RateLimit, asked),
            (LimitingFactor::Link, link),
            (LimitingFactor::Window, window),
            (LimitingFactor::RoundTrips, (both - link.max(window)).max(0.0)),
            (LimitingFactor::Cpu(TransferEnd::Receiver), ran(TransferEnd::Receiver)),
            (LimitingFactor::Storage(TransferEnd::Receiver), waited(TransferEnd::Receiver)),
        ]
    }

    /// For which share of the time the link was full, where both ends waited for this share.
    fn link_share(&self, both: f64) -> f64 {
        let Some(carried) = self.sent.carried else { return 0.0 };
        if self.streams > 1 {
            // Of one of several is not known what it could carry alone; that the link can hold one back must have been seen.
            let filled = self.share(carried.busy) - self.window_full_share();
            return if carried.link_rate.is_some() { both.min(filled.max(0.0)) } else { 0.0 };
        }
        // An end that works meanwhile does not make it less full, unless it never waits for it.
        if both >= THROTTLED_SHARE { self.link_full_share() } else { self.link_full_share().min(both) }
    }

    /// For which share of the time the link was full, by what it carried and can carry.
    fn link_full_share(&self) -> f64 {
        let rate = self.link_rate().unwrap_or_default();
        // Other streams may have carried some of it, which were no faster and are closed.
        let bytes = self.sent.carried.unwrap_or_default().bytes.max(self.moved.amount.moved);
        if rate == 0 { 0.0 } else { self.share((bytes as f64 * 1e9 / rate as f64) as u64) }
    }

    /// Bytes a second that the link can, by moments in which nothing else held it back.
    pub(crate) fn link_rate(&self) -> Option<u64> {
        self.sent.carried.and_then(|carried| carried.link_rate)
    }

    /// For which share of the time a window or a buffer was full: of several connections, which are busy at the same time, on average.
    fn window_full_share(&self) -> f64 {
        self.sent.carried.map_or(0.0, |LinkUsage { window_limited, buffer_limited, busy, .. }| {
            let limited = window_limited.saturating_add(buffer_limited);
            let (share, busy) = (self.share(limited), self.share(busy) * limited as f64 / busy.max(1) as f64);
            if busy > 0.0 { share.min(busy) } else { share }
        })
    }

    /// Whether its rate can be predicted from what the stages of both ends cost, and from what the link can, if that held it back.
    pub(crate) fn is_predictable(&self) -> bool {
        match self.busiest().0 {
            LimitingFactor::Link => self.link_rate().is_some(),
            LimitingFactor::Window | LimitingFactor::RoundTrips => false,
            LimitingFactor::RateLimit | LimitingFactor::Storage(_) | LimitingFactor::Cpu(_) => true,
        }
    }

    /// The busiest of them.
    fn busiest(&self) -> (LimitingFactor, f64) {
        let [first, rest @ ..] = self.limiting_shares();
        rest.into_iter().fold(first, |busiest, limit| if limit.1 > busiest.1 { limit } else { busiest })
    }

    /// How busy everything was that may have limited it, from the source to the target.
    pub fn utilisation(&self) -> [NamedShare; 8] {
        self.limiting_shares().map(|(limit, share)| NamedShare { name: limit.name(), share })
    }

    /// The time of all stages: of both ends, waiting for the other end included.
    pub fn stages(&self) -> [NamedShare; 10] {
        let (sender, receiver) = (&self.sent.load.times, &self.received.load.times);
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
        .map(|(name, nanoseconds)| NamedShare { name, share: self.share(nanoseconds) })
    }

    /// What limited it, in words.
    fn limit_sentence(&self) -> String {
        let (limit, share) = self.busiest();
        let (time, description) = (percent_text(share), limit.description(self));
        match limit {
            LimitingFactor::RoundTrips if share < LIMITING_SHARE => {
                format!("limited by no part alone: both ends waited for each other {time}")
            }
            _ if share < LIMITING_SHARE => format!("limited by no part alone: {description} was the busiest, {time}"),
            LimitingFactor::RateLimit => format!("held back by the limit that was set, {time}"),
            LimitingFactor::Link => self.link_text(&time),
            LimitingFactor::Window => format!("limited by {description}{}, full {time}", self.window_text()),
            LimitingFactor::RoundTrips => self.waits_text(share),
            LimitingFactor::Storage(_) => format!("limited by {description}, which was waited for {time}"),
            LimitingFactor::Cpu(end) => format!("limited by {}", self.cpu_text(end)),
        }
    }

    /// The link held it back for this part of the time.
    fn link_text(&self, time: &str) -> String {
        let full = if self.streams > 1 {
            format!("limited by the link, for which both ends waited {time}")
        } else {
            let rate = units::value_text(self.link_rate().unwrap_or_default() as f64, Unit::BytesPerSecond);
            format!("limited by the link, which was full {time} at {rate}")
        };
        match self.loss_text() {
            Some(lost) => self.loss_sentence(time).unwrap_or_else(|| format!("{full}; {lost}")),
            None => full,
        }
    }

    /// How much was lost, in words, if that is enough to hold a connection back.
    fn loss_text(&self) -> Option<String> {
        let LinkUsage { segments, retransmitted, .. } = self.sent.carried?;
        let share = retransmitted as f64 / segments.max(1) as f64;
        (share >= LOSS_SHARE).then(|| format!("{:.2} % of the segments were sent again", 100.0 * share.min(1.0)))
    }

    /// That losses held it back for this part of the time, where there was no queue before the link.
    fn loss_sentence(&self, time: &str) -> Option<String> {
        let LinkUsage { round_trip, link_round_trip, .. } = self.sent.carried?;
        let is_short = link_round_trip > 0 && (link_round_trip as f64) < QUEUEING_FACTOR * round_trip as f64;
        let lost = self.loss_text().filter(|_| is_short)?;
        let [usual, shortest] = [link_round_trip, round_trip].map(|trip| units::seconds(seconds(trip)));
        Some(format!(
            "limited by losses on the link, or by a limit of its rate that drops what is above it, {time}: {lost}, and round trips took \
             {usual}, no longer than without a queue ({shortest})"
        ))
    }

    /// Both ends waited for this share of the time, and nothing is known to have been full.
    fn waits_text(&self, share: f64) -> String {
        let Some(carried) = self.sent.carried else {
            return format!(
                "limited by the connection, for which both ends waited {}, and of which nothing is known",
                percent_text(share)
            );
        };
        let LinkUsage { answers, round_trip, .. } = carried;
        let link = match self.link_rate() {
            Some(_) => format!("the link was idle {}", percent_text((1.0 - self.link_full_share()).max(0.0))),
            None => "the rate of the link is not known".to_owned(),
        };
        if self.share(answers.saturating_mul(round_trip)) >= EXPLAINED_SHARE * share {
            let trip = units::seconds(seconds(round_trip));
            return format!(
                "limited by round trips: the sender waited for {answers} answers, each of which takes {trip} or more; {link}"
            );
        }
        // Of a connection that had bytes to send all the time.
        if self.share(carried.busy) - self.window_full_share() >= share - THROTTLED_SHARE
            && let Some(losses) = self.loss_sentence(&percent_text(share))
        {
            return losses;
        }
        let answers = percent_text(self.share(carried.response_wait));
        format!(
            "what limited it is not known: both ends waited {}, the sender for answers {answers}, and {link}; kelvin study peer would \
             measure the link alone",
            percent_text(share)
        )
    }

    /// How large a window or a buffer was that was full, and over which round trips, as far as that is known.
    fn window_text(&self) -> String {
        let carried = self.sent.carried.unwrap_or_default();
        let bytes = if carried.is_buffer_limited() { carried.buffer } else { carried.window };
        let size =
            if bytes > 0 { format!(": {}", units::value_text(bytes as f64, Unit::Bytes)) } else { String::new() };
        let separator = if size.is_empty() { ", " } else { " " };
        match carried.round_trip {
            0 => size,
            trip => format!("{size}{separator}over {}", units::seconds(seconds(trip))),
        }
    }

    /// An end that runs, or would if it could.
    fn cpu_text(&self, end: TransferEnd) -> String {
        let EndLoad { cpu, ready, throttled, .. } = *self.end_load(end);
        let throttled = self.share(throttled.min(ready));
        let others = (self.share(ready) - throttled).max(0.0);
        if throttled >= THROTTLED_SHARE && throttled >= others {
            return format!("the CPU quota of the {end}, which kept it from running {}", percent_text(throttled));
        }
        if others >= THROTTLED_SHARE {
            return format!("the CPU of the {end}, which other work had {}", percent_text(others));
        }
        let (stage, _) = self.busiest_stage(end);
        format!("the CPU of the {end}, busy {}, most of it {stage}", percent_text(self.share(cpu)))
    }

    /// The stage of an end that took its CPU most.
    fn busiest_stage(&self, end: TransferEnd) -> (&'static str, u64) {
        let EndLoad { cpu, times, .. } = self.end_load(end);
        let others = [times.verify, times.cipher, times.file.saturating_sub(times.file_wait)];
        // Waiting included, its time says little: what is left of the CPU's is its own.
        let connection = others.iter().fold(*cpu, |left, time| left.saturating_sub(*time)).min(times.connection);
        let names = match end {
            TransferEnd::Sender => ["hashing", "encrypting", "reading files", "sending"],
            TransferEnd::Receiver => ["hashing", "decrypting", "writing files", "receiving"],
        };
        let [verify, cipher, file] = others;
        let stages = [verify, cipher, file, connection];
        names
            .into_iter()
            .zip(stages)
            .fold((names[0], 0), |busiest, stage| if stage.1 > busiest.1 { stage } else { busiest })
    }
}

/// From a rate to another one, with two digits, which is more than is known of them.
fn range_text(expected: &RatePrediction) -> String {
    let [low, high] = [expected.low, expected.high].map(|rate| {
        let digits = 10_f64.powi((rate.max(1) as f64).log10() as i32 - 1);
        units::value_text((rate as f64 / digits).round() * digits, Unit::BytesPerSecond)
    });
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, unit)), Some((_, same))) if unit == same => format!("{figure} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A share of the time, in words.
fn percent_text(share: f64) -> String {
    format!("{:.0} % of the time", (share * 100.0).round())
}

impl fmt::Display for TransferEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

impl LimitingFactor {
    /// For programs.
    fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "the limit that was set",
            Self::Link => "the link",
            Self::Window => "the window of the connection",
            Self::RoundTrips => "waiting for each other",
            Self::Storage(TransferEnd::Sender) => "the source's disk",
            Self::Storage(TransferEnd::Receiver) => "the target's disk",
            Self::Cpu(TransferEnd::Sender) => "the CPU of the sender",
            Self::Cpu(TransferEnd::Receiver) => "the CPU of the receiver",
        }
    }

    /// For people, who want to know what it was.
    fn description(self, summary: &TransferSummary) -> &'static str {
        if let (Self::Window, Some(carried)) = (self, summary.sent.carried) {
            return if carried.is_buffer_limited() { "the sender's buffer" } else { "the receiver's window" };
        }
        let Self::Storage(end) = self else { return self.name() };
        match (end, summary.end_load(end).storage) {
            (TransferEnd::Sender, StorageKind::Memory) => "the source's file system",
            (TransferEnd::Receiver, StorageKind::Memory) => "the target's file system",
            (TransferEnd::Sender, StorageKind::Served) => "whoever serves the source's file system",
            (TransferEnd::Receiver, StorageKind::Served) => "whoever serves the target's file system",
            (TransferEnd::Sender, StorageKind::Pipe) => "what feeds the sender's standard input",
            (TransferEnd::Receiver, StorageKind::Pipe) => "what reads the receiver's standard output",
            _ => self.name(),
        }
    }
}

/// Why it was this number of streams, for programs.
#[derive(Serialize)]
struct StreamChoiceRecord {
    speedup: f64,
    no_faster: Option<u32>,
    words: String,
}

/// As data, for programs.
impl Serialize for TransferSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { moved: MovedFiles { files, amount, .. }, settings, streams, sent, received } = self;
        let mut record = serializer.serialize_map(None)?;
        record.serialize_entry("files", files)?;
        record.serialize_entry("bytes", &amount.total())?;
        record.serialize_entry("holes", &amount.holes)?;
        record.serialize_entry("resumed", &amount.resumed)?;
        record.serialize_entry("failed", &sent.failed)?;
        record.serialize_entry("seconds", &seconds(sent.nanoseconds))?;
        record.serialize_entry("bytes_per_second", &self.rate())?;
        record.serialize_entry("expected_bytes_per_second", &sent.expected)?;
        record.serialize_entry("verified", &settings.verify)?;
        record.serialize_entry("encrypted", &!settings.plain)?;
        record.serialize_entry("synced", &settings.sync)?;
        record.serialize_entry("streams", streams)?;
        if let Some(chosen @ StreamChoice { no_faster, .. }) = sent.chosen {
            let choice = StreamChoiceRecord { speedup: chosen.speedup(), no_faster, words: chosen.to_string() };
            record.serialize_entry("chosen", &choice)?;
        }
        record.serialize_entry("connection", settings.connection.word())?;
        record.serialize_entry("seconds_flushing", &self.flushed().map(seconds))?;
        record.serialize_entry("unwritten_bytes", &received.unwritten_bytes)?;
        record.serialize_entry("method", &sent.method.map(SendMethod::word))?;
        record.serialize_entry("received_by", &received.method.map(ReceiveMethod::word))?;
        record.serialize_entry("utilisation", &self.utilisation())?;
        if let Some(carried) = sent.carried {
            record.serialize_entry("carried", &carried)?;
        }
        record.serialize_entry("stages", &self.stages())?;
        record.serialize_entry("sentence", &self.to_string())?;
        record.end()
    }
}

impl TransferSummary {
    /// Over what; one connection is not worth a word, unless it was compared with more.
    fn connections_text(&self) -> String {
        let why = self.sent.chosen.map_or_else(String::new, |chosen| format!(" ({chosen})"));
        match (self.settings.connection, self.streams) {
            (ConnectionLifetime::PerFile, _) => ", over a connection for each file".into(),
            (ConnectionLifetime::Persistent, 1) if self.sent.chosen.is_none() => String::new(),
            (ConnectionLifetime::Persistent, 1) => format!(", over one stream{why}"),
            (ConnectionLifetime::Persistent, streams) => format!(", over {streams} streams{why}"),
        }
    }

    /// By what methods; the usual ones are not worth a word.
    fn methods_text(&self) -> String {
        let sent = self.sent.method.filter(|method| *method != SendMethod::ReadWrite);
        let received = self.received.method.filter(|method| *method != ReceiveMethod::ReadWrite);
        let sent = sent.map_or_else(String::new, |method| format!(", by {method}"));
        received.map_or(sent.clone(), |method| format!("{sent}, received by {method}"))
    }
}

impl fmt::Display for TransferSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MovedFiles { files, amount, .. } = self.moved;
        if files == 0 {
            return out.write_str("moved nothing");
        }
        write!(
            out,
            "moved {}, {}{}, in {} from connecting to the last byte: {}",
            units::files(files),
            units::bytes(amount.total()),
            self.unsent_text(),
            units::seconds(seconds(self.sent.nanoseconds)),
            units::value_text(self.rate(), Unit::BytesPerSecond),
        )?;
        if let Some(expected) = self.sent.expected {
            write!(out, " ({} predicted)", range_text(&expected))?;
        }
        write!(
            out,
            "{}, {}, {}{}; {}",
            self.connections_text(),
            if !self.settings.plain { "encrypted" } else { "not encrypted" },
            if self.settings.verify { "verified" } else { "not verified" },
            self.methods_text(),
            self.limit_sentence(),
        )?;
        if let Some(flushed) = self.flushed() {
            write!(out, "; flushed to the target's disk in {} more", units::seconds(seconds(flushed)))?;
        }
        match self.received.unwritten_bytes {
            Some(bytes) if bytes > 0 => write!(out, "; up to {} not yet on the target's disk", units::bytes(bytes)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousandths of the time of a transfer of 2 s.
    const fn thousandths_of_transfer(thousandths: u64) -> u64 {
        thousandths * 2_000_000
    }

    /// One end: its CPU time, and what it waited for its files.
    fn end_load(cpu: u64, file_wait: u64) -> EndLoad {
        let times = StageTimes {
            file_wait: thousandths_of_transfer(file_wait),
            file: thousandths_of_transfer(file_wait),
            ..StageTimes::default()
        };
        EndLoad { cpu: thousandths_of_transfer(cpu), times, ..EndLoad::default() }
    }

    fn summary(sender: EndLoad, receiver: EndLoad) -> TransferSummary {
        let sent = SenderReport {
            nanoseconds: thousandths_of_transfer(1000),
            failed: 0,
            load: sender,
            carried: None,
            expected: None,
            method: None,
            chosen: None,
        };
        TransferSummary {
            moved: MovedFiles { files: 1, small: 0, amount: ByteCounts::from_sent(1_000_000_000) },
            settings: SessionSettings::DEFAULT,
            streams: 1,
            sent,
            received: ReceiverReport { since: 0, load: receiver, costs: None, unwritten_bytes: None, method: None },
        }
    }

    fn with_receiver(load: EndLoad, summary: TransferSummary) -> TransferSummary {
        TransferSummary { received: ReceiverReport { load, ..summary.received }, ..summary }
    }

    fn limit_sentence(sender: EndLoad, receiver: EndLoad) -> String {
        summary(sender, receiver).limit_sentence()
    }

    #[test]
    fn limiting_stage_is_named() {
        let idle = end_load(100, 0);
        assert_eq!(
            limit_sentence(end_load(90, 910), idle),
            "limited by the source's disk, which was waited for 91 % of the time"
        );
        assert_eq!(
            limit_sentence(idle, end_load(50, 900)),
            "limited by the target's disk, which was waited for 90 % of the time"
        );
        let flushing =
            EndLoad { times: StageTimes { sync: thousandths_of_transfer(800), ..StageTimes::default() }, ..idle };
        assert!(limit_sentence(idle, flushing).starts_with("limited by the target's disk, "));
        let mut mostly = summary(idle, end_load(900, 0));
        mostly.settings.sync = true;
        mostly.received.since = thousandths_of_transfer(1500);
        mostly.received.load.times = StageTimes { sync: thousandths_of_transfer(1500), ..StageTimes::default() };
        assert_eq!(mostly.limit_sentence(), "limited by the target's disk, which was waited for 60 % of the time");
        assert!(mostly.to_string().ends_with("; flushed to the target's disk in 3.00 s more"), "{mostly}");
        let asked = EndLoad {
            times: StageTimes { limit: thousandths_of_transfer(930), ..StageTimes::default() },
            ..end_load(50, 0)
        };
        assert_eq!(limit_sentence(asked, idle), "held back by the limit that was set, 93 % of the time");
    }

    /// Ends that wait 90 % of 2 s, in which the connection carried as much as at 10 MB/s takes this many thousandths of that.
    fn waiting_summary(full: u64, carried: LinkUsage) -> TransferSummary {
        let bytes = thousandths_of_transfer(full) / 100;
        let moved = MovedFiles { files: 1, small: 0, amount: ByteCounts::from_sent(bytes / 2) };
        let waiting = summary(end_load(100, 0), end_load(100, 0));
        let sent = SenderReport { carried: Some(LinkUsage { bytes, ..carried }), ..waiting.sent };
        TransferSummary { moved, sent, ..waiting }
    }

    const RATE: u64 = 10_000_000;

    #[test]
    fn full_and_idle_link_are_distinguished() {
        let known = LinkUsage { link_rate: Some(RATE), ..LinkUsage::default() };
        let full = waiting_summary(970, known);
        assert_eq!(full.limit_sentence(), "limited by the link, which was full 97 % of the time at 10.0 MB/s");
        // An end that works meanwhile does not make it less full; one that never waits for it is the limit.
        let works = with_receiver(end_load(550, 0), full);
        assert_eq!(works.limit_sentence(), full.limit_sentence());
        let busy = with_receiver(end_load(970, 0), full);
        assert!(busy.limit_sentence().starts_with("limited by the CPU of the receiver, "), "{}", busy.limit_sentence());
        let idle = waiting_summary(
            200,
            LinkUsage { response_wait: thousandths_of_transfer(780), answers: 2, round_trip: 50_000, ..known },
        );
        assert_eq!(
            idle.limit_sentence(),
            "what limited it is not known: both ends waited 70 % of the time, the sender for answers 78 % of the time, and the link was idle \
             80 % of the time; kelvin study peer would measure the link alone"
        );
        assert!(full.is_predictable() && !idle.is_predictable());
        // Another stream, which was no faster, has carried some of it.
        let moved = MovedFiles { amount: ByteCounts::from_sent(thousandths_of_transfer(970) / 100), ..full.moved };
        let shared = TransferSummary { moved, ..waiting_summary(500, known) };
        assert_eq!(shared.limit_sentence(), full.limit_sentence());
        let half = waiting_summary(500, known);
        assert!(
            half.limit_sentence().starts_with("limited by no part alone: the link was the busiest, 50 %"),
            "{}",
            half.limit_sentence()
        );
    }

    #[test]
    fn losses_and_full_link_are_distinguished() {
        let known = LinkUsage { link_rate: Some(RATE), segments: 5000, round_trip: 40_000_000, ..LinkUsage::default() };
        let of = |retransmitted, link_round_trip| {
            waiting_summary(970, LinkUsage { retransmitted, link_round_trip, ..known }).limit_sentence()
        };
        let full = "limited by the link, which was full 97 % of the time at 10.0 MB/s";
        assert_eq!(of(4, 41_000_000), full);
        assert_eq!(of(60, 55_000_000), format!("{full}; 1.20 % of the segments were sent again"));
        assert_eq!(
            of(60, 41_000_000),
            "limited by losses on the link, or by a limit of its rate that drops what is above it, 97 % of the time: 1.20 % of the segments \
             were sent again, and round trips took 41.0 ms, no longer than without a queue (40.0 ms)"
        );
        // Its rate is not known, since it went up and down.
        let unknown = LinkUsage {
            link_rate: None,
            retransmitted: 60,
            link_round_trip: 41_000_000,
            busy: thousandths_of_transfer(950),
            ..known
        };
        assert!(
            waiting_summary(970, unknown)
                .limit_sentence()
                .starts_with("limited by losses on the link, or by a limit of its rate ")
        );
        let rarely = waiting_summary(970, LinkUsage { busy: thousandths_of_transfer(300), ..unknown }).limit_sentence();
        assert!(rarely.starts_with("what limited it is not known: "), "{rarely}");
    }

    #[test]
    fn link_rate_needs_unlimited_moment() {
        let short = waiting_summary(800, LinkUsage::default());
        let words = "what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 % of the time, and the rate \
                     of the link is not known; kelvin study peer would measure the link alone";
        assert_eq!(short.limit_sentence(), words);
        assert!(!short.is_predictable());
        // An end that always works is the limit whatever the link can.
        let slow = with_receiver(end_load(900, 0), waiting_summary(1000, LinkUsage::default()));
        assert!(slow.limit_sentence().starts_with("limited by the CPU of the receiver, "), "{}", slow.limit_sentence());
    }

    #[test]
    fn response_waits_are_named_round_trips() {
        let known = LinkUsage {
            answers: 40,
            round_trip: thousandths_of_transfer(20),
            response_wait: thousandths_of_transfer(850),
            link_rate: Some(RATE),
            ..LinkUsage::default()
        };
        assert_eq!(
            waiting_summary(100, known).limit_sentence(),
            "limited by round trips: the sender waited for 40 answers, each of which takes 40.0 ms or more; the link was idle 90 % of \
             the time"
        );
        let unknown = summary(end_load(100, 0), end_load(100, 0));
        assert_eq!(
            unknown.limit_sentence(),
            "limited by the connection, for which both ends waited 90 % of the time, and of which nothing is known"
        );
        assert!(!unknown.is_predictable());
    }

    #[test]
    fn full_window_or_buffer_is_named() {
        let known = LinkUsage { round_trip: 40_000_000, busy: thousandths_of_transfer(990), ..LinkUsage::default() };
        let window = LinkUsage { window_limited: thousandths_of_transfer(850), window: 4 << 20, ..known };
        let words = "limited by the receiver's window: 4.00 MiB over 40.0 ms, full 85 % of the time";
        assert_eq!(waiting_summary(300, window).limit_sentence(), words);
        // What it lets through is not what the link can.
        let window = waiting_summary(990, window);
        assert_eq!(window.limit_sentence(), words);
        let older = waiting_summary(990, LinkUsage { window_limited: thousandths_of_transfer(850), ..known });
        assert_eq!(older.limit_sentence(), "limited by the receiver's window, over 40.0 ms, full 85 % of the time");
        let buffer = waiting_summary(
            300,
            LinkUsage {
                buffer_limited: thousandths_of_transfer(700),
                window_limited: thousandths_of_transfer(100),
                buffer: 200 << 10,
                ..known
            },
        );
        assert_eq!(
            buffer.limit_sentence(),
            "limited by the sender's buffer: 200 KiB over 40.0 ms, full 80 % of the time"
        );
        // A receiver that does not read fills it as well.
        let slow = with_receiver(end_load(50, 900), window);
        assert!(slow.limit_sentence().starts_with("limited by the target's disk, "), "{}", slow.limit_sentence());
    }

    #[test]
    fn multi_stream_link_uses_first_stream() {
        let several = TransferSummary {
            streams: 4,
            ..waiting_summary(
                250,
                LinkUsage { busy: thousandths_of_transfer(950), link_rate: Some(RATE), ..LinkUsage::default() },
            )
        };
        assert_eq!(several.limit_sentence(), "limited by the link, for which both ends waited 90 % of the time");
        // All of them are busy at once, and a window holds each back for a fifth of that.
        let carried = LinkUsage {
            busy: 4 * thousandths_of_transfer(950),
            window_limited: 4 * thousandths_of_transfer(190),
            link_rate: Some(RATE),
            ..LinkUsage::default()
        };
        let several = TransferSummary { streams: 4, ..waiting_summary(250, carried) };
        assert!((several.window_full_share() - 0.2).abs() < 1e-9, "{}", several.window_full_share());
        assert!(several.limit_sentence().starts_with("limited by the link, "), "{}", several.limit_sentence());
        // What holds neither back need not be the link, where that was never seen to.
        let unseen = TransferSummary {
            streams: 4,
            ..waiting_summary(250, LinkUsage { busy: thousandths_of_transfer(950), ..LinkUsage::default() })
        };
        assert!(
            unseen.limit_sentence().starts_with(
                "what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 %"
            ) && unseen.limit_sentence().contains("and the rate of the link is not known; "),
            "{}",
            unseen.limit_sentence()
        );
    }

    #[test]
    fn running_and_runnable_ends_are_distinguished() {
        let idle = end_load(400, 0);
        let times = |times: [u64; 4]| {
            let [file, verify, cipher, connection] = times.map(thousandths_of_transfer);
            StageTimes { file, verify, cipher, connection, ..StageTimes::default() }
        };
        let busy = EndLoad { times: times([200, 300, 250, 250]), ..end_load(970, 0) };
        assert_eq!(
            limit_sentence(busy, idle),
            "limited by the CPU of the sender, busy 97 % of the time, most of it hashing"
        );
        let busy = EndLoad { times: times([200, 100, 0, 700]), ..end_load(970, 0) };
        assert_eq!(
            limit_sentence(idle, busy),
            "limited by the CPU of the receiver, busy 97 % of the time, most of it receiving"
        );
        let kept = EndLoad {
            ready: thousandths_of_transfer(550),
            throttled: thousandths_of_transfer(700),
            ..end_load(400, 0)
        };
        assert_eq!(
            limit_sentence(kept, idle),
            "limited by the CPU quota of the sender, which kept it from running 55 % of the time"
        );
        let crowded = EndLoad { ready: thousandths_of_transfer(500), ..end_load(450, 300) };
        assert_eq!(
            limit_sentence(idle, crowded),
            "limited by the CPU of the receiver, which other work had 50 % of the time"
        );
    }

    #[test]
    fn each_storage_kind_has_own_wording() {
        let of = |storage| {
            let waits = EndLoad { storage, ..end_load(50, 900) };
            limit_sentence(end_load(100, 0), waits)
        };
        assert!(of(StorageKind::Pipe).starts_with("limited by what reads the receiver's standard output, which was"));
        assert!(of(StorageKind::Served).starts_with("limited by whoever serves the target's file system, "));
    }

    #[test]
    fn sentence_has_amount_rate_and_limit() {
        let slow = summary(end_load(300, 0), end_load(50, 900));
        assert_eq!(
            slow.to_string(),
            "moved 1 file, 954 MiB, in 2.00 s from connecting to the last byte: 500 MB/s, encrypted, verified; limited by the \
             target's disk, which was waited for 90 % of the time"
        );
        let expected = Some(RatePrediction { low: 1_000_000_000, rate: 1_500_000_000, high: 1_800_000_000 });
        let method = Some(SendMethod::Sendfile);
        let sent = SenderReport { expected, method, ..slow.sent };
        let received = ReceiverReport { unwritten_bytes: Some(700 << 20), ..slow.received };
        let more = TransferSummary { sent, received, ..slow }.to_string();
        assert!(more.contains(", encrypted, verified, by sendfile; limited by "), "{more}");
        let received = ReceiverReport { method: Some(ReceiveMethod::Splice), ..slow.received };
        let both = TransferSummary { sent: SenderReport { method, ..slow.sent }, received, ..slow }.to_string();
        assert!(both.contains(", verified, by sendfile, received by splice; limited by "), "{both}");
        assert!(more.contains(": 500 MB/s (1.00 to 1.80 GB/s predicted), encrypted, "), "{more}");
        assert_eq!(range_text(&RatePrediction { low: 999_900_000, rate: 1, high: 123_456 }), "1.00 GB/s to 120 kB/s");
        let split = TransferSummary { streams: 4, ..slow }.to_string();
        assert!(split.contains(": 500 MB/s, over 4 streams, encrypted, "), "{split}");
        let chosen = Some(StreamChoice { streams: 4, thousandths: 3120, no_faster: Some(8) });
        let faster = TransferSummary { streams: 4, sent: SenderReport { chosen, ..slow.sent }, ..slow }.to_string();
        assert!(faster.contains(", over 4 streams (3.1 times the rate of one, 8 no faster), encrypted, "), "{faster}");
        let chosen = Some(StreamChoice { streams: 1, thousandths: 1000, no_faster: Some(2) });
        let one = TransferSummary { sent: SenderReport { chosen, ..slow.sent }, ..slow }.to_string();
        assert!(one.contains(": 500 MB/s, over one stream (2 were no faster), encrypted, "), "{one}");
        let settings = SessionSettings { connection: ConnectionLifetime::PerFile, ..SessionSettings::DEFAULT };
        let apart = TransferSummary { settings, ..slow }.to_string();
        assert!(apart.contains(": 500 MB/s, over a connection for each file, encrypted, "), "{apart}");
        assert!(more.ends_with(" % of the time; up to 700 MiB not yet on the target's disk"), "{more}");
        let amount = ByteCounts { holes: 1 << 20, resumed: 3 << 20, moved: 4 << 20 };
        let partly = TransferSummary { moved: MovedFiles { amount, ..slow.moved }, ..slow };
        assert!(
            partly.to_string().starts_with("moved 1 file, 8 MiB (3 MiB there from before, 1 MiB of holes), in 2.00 s")
        );
        let moved = MovedFiles { files: 3, ..slow.moved };
        let settings = SessionSettings { verify: false, ..SessionSettings::DEFAULT };
        let even = TransferSummary { moved, settings, ..summary(end_load(500, 0), end_load(550, 0)) }.to_string();
        let words = "not verified; limited by no part alone: the CPU of the receiver was the busiest, 55 % of the time";
        assert!(even.ends_with(words) && even.starts_with("moved 3 files, "), "{even}");
    }

    /// The other end's figures are its own, and may be anything.
    #[test]
    fn extreme_figures_are_handled() {
        let all = u64::MAX;
        let times =
            StageTimes { file: all, file_wait: all, verify: all, cipher: all, connection: all, sync: all, limit: all };
        let most = EndLoad { times, cpu: all, ready: all, throttled: all, storage: StorageKind::Disk };
        for load in [EndLoad::default(), most] {
            for (most, streams) in [(None, 1), (Some(0), 1), (Some(all), 2)] {
                let carried = LinkUsage {
                    bytes: all,
                    busy: all,
                    window_limited: all,
                    buffer_limited: all,
                    window: all,
                    buffer: all,
                    link_rate: most,
                    round_trip: all,
                    link_round_trip: all,
                    segments: all,
                    retransmitted: all,
                    answers: all,
                    response_wait: all,
                };
                let mut odd = TransferSummary { streams, ..summary(load, load) };
                (odd.sent.nanoseconds, odd.sent.carried) = (0, Some(carried));
                let shares = odd.stages().into_iter().chain(odd.utilisation());
                assert!(shares.into_iter().all(|share| (0.0..=1.0).contains(&share.share)), "{odd}");
            }
        }
    }
}
