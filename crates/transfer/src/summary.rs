//! What both ends report at the end: what was moved, how fast, what limited it, and what was to be expected.

#[cfg(test)]
mod tests;

use std::fmt;

use kelvin_core::{Unit, units};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::compression::CompressionReport;
use crate::datapath::{ReceiveMethod, SendMethod};
use crate::link_usage::LinkUsage;
use crate::message::{ConnectionLifetime, FileEntry, ReceiverReport, SenderReport, SessionSettings, StreamChoice};
use crate::rate_prediction::RatePrediction;
use crate::stage_times::{EndLoad, StageTimes, StorageKind};

/// The share of the time from which on something is named as what limited a transfer.
const LIMITING_SHARE: f64 = 0.6;
/// The share of the waits of both ends from which on round trips explain them.
const EXPLAINED_SHARE: f64 = 0.5;
/// The share from which on a quota, or other work, is named as what kept an end from running.
const THROTTLED_SHARE: f64 = 0.1;
/// The share of segments that were sent again from which on losses may hold a connection back. With Reno one in a thousand keeps some 39
/// segments on their way (Mathis et al. 1997, sqrt(3 / 2p)).
const LOSS_SHARE: f64 = 0.001;
/// How many times the shortest round trip one takes at least where there is a queue before the link.
const QUEUEING_FACTOR: f64 = 1.1;

/// How many times as long a transfer without compression would have taken at least for that to be said.
const MIN_COMPRESSION_GAIN: f64 = 1.05;

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
    pub(crate) fn add(&mut self, other: &Self) {
        self.moved = self.moved.saturating_add(other.moved);
        self.holes = self.holes.saturating_add(other.holes);
        self.resumed = self.resumed.saturating_add(other.resumed);
    }
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedFiles {
    /// Files in their place.
    pub files: u64,
    /// Of these, files that went together.
    pub small_files: u64,
    /// Further names of files that were made, as hard links.
    pub hard_links: u64,
    /// Their bytes.
    pub amount: ByteCounts,
}

impl MovedFiles {
    /// Adds a file that is in its place.
    pub(crate) fn add(&mut self, entry: &FileEntry, amount: &ByteCounts) {
        self.files += 1;
        self.small_files += u64::from(entry.is_small());
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
    fn flush_time(&self) -> Option<u64> {
        self.settings.sync.then_some(self.received.since)
    }

    /// Bytes that were sent per second.
    pub fn rate(&self) -> f64 {
        self.moved.amount.moved as f64 / seconds(self.sent.nanoseconds.max(1))
    }

    /// Which bytes were not sent, in words.
    fn unsent_text(&self) -> String {
        let ByteCounts { holes, resumed, .. } = self.moved.amount;
        let kinds = [(resumed, "there from before"), (holes, "of holes")].into_iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = kinds.map(|(bytes, kind)| format!("{} {kind}", units::bytes(bytes))).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

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

    /// What protects it.
    fn protection_text(&self) -> &'static str {
        match self.settings {
            SessionSettings { remote_shell: true, .. } => "through a remote shell",
            SessionSettings { plain: true, .. } => "not encrypted",
            _ => "encrypted",
        }
    }

    /// By what methods; the usual ones are not worth a word.
    fn methods_text(&self) -> String {
        let sent = self.sent.method.filter(|method| *method != SendMethod::ReadWrite);
        let received = self.received.method.filter(|method| *method != ReceiveMethod::ReadWrite);
        let sent = sent.map_or_else(String::new, |method| format!(", by {method}"));
        received.map_or(sent.clone(), |method| format!("{sent}, received by {method}"))
    }

    fn end_load(&self, end: TransferEnd) -> &EndLoad {
        match end {
            TransferEnd::Sender => &self.sent.load,
            TransferEnd::Receiver => &self.received.load,
        }
    }

    /// A share of the whole time, flushing included.
    fn share(&self, nanoseconds: u64) -> f64 {
        let total = self.sent.nanoseconds.saturating_add(self.flush_time().unwrap_or_default());
        (nanoseconds as f64 / total.max(1) as f64).min(1.0)
    }

    /// How busy everything was that may have limited it, with its name for programs.
    fn limiting_shares(&self) -> [(LimitingFactor, NamedShare); 8] {
        let storage_share = |end| {
            let StageTimes { file_wait, sync, .. } = self.end_load(end).times;
            // A call that did not run because others did has not waited for a disk.
            self.share(file_wait.saturating_add(sync).saturating_sub(self.end_load(end).ready))
        };
        let cpu_share = |end| self.share(self.end_load(end).cpu.saturating_add(self.end_load(end).ready));
        let limit_share = self.share(self.sent.load.times.limit);
        // What an end did neither of, it waited for the connection: for the other end, or, if that waited too, for what is between them.
        let sender = 1.0 - storage_share(TransferEnd::Sender) - cpu_share(TransferEnd::Sender) - limit_share;
        let receiver = 1.0 - storage_share(TransferEnd::Receiver) - cpu_share(TransferEnd::Receiver);
        let wait_share = sender.min(receiver).max(0.0);
        let (link, window) = (self.link_share(wait_share), self.window_full_share().min(wait_share));
        [
            (LimitingFactor::Storage(TransferEnd::Sender), "the source's disk", storage_share(TransferEnd::Sender)),
            (LimitingFactor::Cpu(TransferEnd::Sender), "the CPU of the sender", cpu_share(TransferEnd::Sender)),
            (LimitingFactor::RateLimit, "the limit that was set", limit_share),
            (LimitingFactor::Link, "the link", link),
            (LimitingFactor::Window, "the window of the connection", window),
            (LimitingFactor::RoundTrips, "waiting for each other", (wait_share - link.max(window)).max(0.0)),
            (LimitingFactor::Cpu(TransferEnd::Receiver), "the CPU of the receiver", cpu_share(TransferEnd::Receiver)),
            (LimitingFactor::Storage(TransferEnd::Receiver), "the target's disk", storage_share(TransferEnd::Receiver)),
        ]
        .map(|(limit, name, share)| (limit, NamedShare { name, share }))
    }

    /// For which share of the time the link was full, where both ends waited for this share.
    fn link_share(&self, wait_share: f64) -> f64 {
        let Some(carried) = self.sent.carried else { return 0.0 };
        if self.streams > 1 {
            // Of one of several is not known what it could carry alone; that the link can hold one back must have been seen.
            let busy_share = self.share(carried.busy) - self.window_full_share();
            return if carried.link_rate.is_some() { wait_share.min(busy_share.max(0.0)) } else { 0.0 };
        }
        // An end that works meanwhile does not make it less full, unless it never waits for it.
        if wait_share >= THROTTLED_SHARE { self.link_full_share() } else { self.link_full_share().min(wait_share) }
    }

    /// For which share of the time the link was full, by what it carried and can carry.
    fn link_full_share(&self) -> f64 {
        let rate = self.link_rate().unwrap_or_default();
        // Other streams may have carried some of it, which were no faster and are closed.
        let saved_bytes = self.sent.compression.map_or(0, |compression| compression.saved_bytes());
        let sent_bytes = self.moved.amount.moved.saturating_sub(saved_bytes);
        let bytes = self.sent.carried.unwrap_or_default().bytes.max(sent_bytes);
        if rate == 0 { 0.0 } else { self.share((bytes as f64 * 1e9 / rate as f64) as u64) }
    }

    /// Bytes a second that the link can, by moments in which nothing else held it back.
    pub(crate) fn link_rate(&self) -> Option<u64> {
        self.sent.carried.and_then(|carried| carried.link_rate)
    }

    /// For which share of the time a window or a buffer was full: of several connections, which are busy at the same time, on average.
    fn window_full_share(&self) -> f64 {
        self.sent.carried.map_or(0.0, |LinkUsage { window_limited, buffer_limited, busy, .. }| {
            let limited_time = window_limited.saturating_add(buffer_limited);
            let (share, busy) = (self.share(limited_time), self.share(busy) * limited_time as f64 / busy.max(1) as f64);
            if busy > 0.0 { share.min(busy) } else { share }
        })
    }

    /// Whether its rate can be predicted from what the stages of both ends cost, and from what the link can, if that held it back.
    ///
    /// What a remote shell and its encryption cost is not known, nor how far what comes next could be compressed.
    pub(crate) fn is_predictable(&self) -> bool {
        if self.settings.remote_shell || self.settings.compressed {
            return false;
        }
        match self.busiest().0 {
            LimitingFactor::Link => self.link_rate().is_some(),
            LimitingFactor::Window | LimitingFactor::RoundTrips => false,
            LimitingFactor::RateLimit | LimitingFactor::Storage(_) | LimitingFactor::Cpu(_) => true,
        }
    }

    /// The busiest of them.
    fn busiest(&self) -> (LimitingFactor, NamedShare) {
        let [first, rest @ ..] = self.limiting_shares();
        rest.into_iter().fold(first, |busiest, limit| if limit.1.share > busiest.1.share { limit } else { busiest })
    }

    /// How busy everything was that may have limited it, from the source to the target.
    pub fn utilisation(&self) -> [NamedShare; 8] {
        self.limiting_shares().map(|(_, share)| share)
    }

    /// The time of all stages: of both ends, waiting for the other end included.
    pub fn stages(&self) -> [NamedShare; 12] {
        let (sender, receiver) = (&self.sent.load.times, &self.received.load.times);
        [
            ("reading at the sender", sender.file),
            ("hashing at the sender", sender.verify),
            ("compressing at the sender", sender.compress),
            ("encrypting at the sender", sender.cipher),
            ("sending at the sender", sender.connection),
            ("the limit that was set", sender.limit),
            ("receiving at the receiver", receiver.connection),
            ("decrypting at the receiver", receiver.cipher),
            ("decompressing at the receiver", receiver.compress),
            ("hashing at the receiver", receiver.verify),
            ("writing at the receiver", receiver.file),
            ("flushing at the receiver", receiver.sync),
        ]
        .map(|(name, nanoseconds)| NamedShare { name, share: self.share(nanoseconds) })
    }

    /// How far it was compressed, if it was to be.
    fn compression_text(&self) -> String {
        self.sent.compression.map_or_else(String::new, |compression| format!(", {compression}"))
    }

    /// How many times as long it would have taken without compression, where both ends waited for the connection: that would have
    /// taken as many bytes a second.
    fn compression_gain(&self) -> Option<f64> {
        let CompressionReport { connection_rate, .. } = self.sent.compression.filter(CompressionReport::is_smaller)?;
        let is_connection =
            matches!(self.busiest().0, LimitingFactor::Link | LimitingFactor::Window | LimitingFactor::RoundTrips);
        // Of several streams each one knows its own share.
        let rate = self.link_rate().or(connection_rate).filter(|_| self.streams == 1)?;
        let gain = self.moved.amount.moved as f64 / rate.max(1) as f64 / seconds(self.sent.nanoseconds.max(1));
        (is_connection && gain >= MIN_COMPRESSION_GAIN).then_some(gain)
    }

    fn compression_gain_text(&self) -> String {
        let text = |gain: f64| format!("; sending it plain would have taken {gain:.1} times as long");
        self.compression_gain().map_or_else(String::new, text)
    }

    /// What limited it, in words.
    fn limit_sentence(&self) -> String {
        let (limit, NamedShare { name, share }) = self.busiest();
        let (time, description) = (percent_text(share), self.limit_description(limit, name));
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

    /// For people, who want to know what it was.
    fn limit_description(&self, limit: LimitingFactor, name: &'static str) -> &'static str {
        if let (LimitingFactor::Window, Some(carried)) = (limit, self.sent.carried) {
            return if carried.is_buffer_limited() { "the sender's buffer" } else { "the receiver's window" };
        }
        let LimitingFactor::Storage(end) = limit else { return name };
        match (end, self.end_load(end).storage) {
            (TransferEnd::Sender, StorageKind::Memory) => "the source's file system",
            (TransferEnd::Receiver, StorageKind::Memory) => "the target's file system",
            (TransferEnd::Sender, StorageKind::Served) => "the server of the source's file system",
            (TransferEnd::Receiver, StorageKind::Served) => "the server of the target's file system",
            (TransferEnd::Sender, StorageKind::Pipe) => "what feeds the sender's standard input",
            (TransferEnd::Receiver, StorageKind::Pipe) => "what reads the receiver's standard output",
            _ => name,
        }
    }

    /// The link held it back for this part of the time.
    fn link_text(&self, time: &str) -> String {
        let sentence = if self.streams > 1 {
            format!("limited by the link, for which both ends waited {time}")
        } else {
            let rate = units::value_text(self.link_rate().unwrap_or_default() as f64, Unit::BytesPerSecond);
            format!("limited by the link, which was full {time} at {rate}")
        };
        match self.loss_text() {
            Some(lost) => self.loss_sentence(time).unwrap_or_else(|| format!("{sentence}; {lost}")),
            None => sentence,
        }
    }

    /// How much was lost, in words, if that is enough to hold a connection back.
    fn loss_text(&self) -> Option<String> {
        let LinkUsage { segments, retransmitted, .. } = self.sent.carried?;
        let share = retransmitted as f64 / segments.max(1) as f64;
        (share >= LOSS_SHARE).then(|| format!("{:.2} % of the segments were retransmitted", 100.0 * share.min(1.0)))
    }

    /// That losses held it back for this part of the time, where there was no queue before the link.
    fn loss_sentence(&self, time: &str) -> Option<String> {
        let LinkUsage { round_trip, link_round_trip, .. } = self.sent.carried?;
        let is_short = link_round_trip > 0 && (link_round_trip as f64) < QUEUEING_FACTOR * round_trip as f64;
        let lost = self.loss_text().filter(|_| is_short)?;
        let [mean, shortest] = [link_round_trip, round_trip].map(|trip| units::seconds(seconds(trip)));
        Some(format!(
            "limited by losses on the link, or by a limit of its rate that drops what is above it, {time}: {lost}, and round trips took \
             {mean}, no longer than without a queue ({shortest})"
        ))
    }

    /// Both ends waited for this share of the time, and nothing is known to have been full.
    fn waits_text(&self, share: f64) -> String {
        let Some(carried) = self.sent.carried else {
            return format!(
                "limited by the connection, for which both ends waited {}; nothing more is known of it",
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
        let role = match end {
            TransferEnd::Sender => "sender",
            TransferEnd::Receiver => "receiver",
        };
        let throttled = self.share(throttled.min(ready));
        let other_work = (self.share(ready) - throttled).max(0.0);
        if throttled >= THROTTLED_SHARE && throttled >= other_work {
            return format!("the CPU quota of the {role}, which kept it from running {}", percent_text(throttled));
        }
        if other_work >= THROTTLED_SHARE {
            return format!("the CPU of the {role}, which other work had {}", percent_text(other_work));
        }
        format!("the CPU of the {role}, busy {}, most of it {}", percent_text(self.share(cpu)), self.busiest_stage(end))
    }

    /// The stage of an end that took its CPU most.
    fn busiest_stage(&self, end: TransferEnd) -> &'static str {
        let EndLoad { cpu, times, .. } = self.end_load(end);
        let cpu_times = [times.verify, times.compress, times.cipher, times.file.saturating_sub(times.file_wait)];
        // Waiting included, its time shows little: what is left of the CPU's is its own.
        let connection =
            cpu_times.iter().fold(*cpu, |remaining, time| remaining.saturating_sub(*time)).min(times.connection);
        let names = match end {
            TransferEnd::Sender => ["hashing", "compressing", "encrypting", "reading files", "sending"],
            TransferEnd::Receiver => ["hashing", "decompressing", "decrypting", "writing files", "receiving"],
        };
        let [verify, compress, cipher, file] = cpu_times;
        // The first one of several that took as long.
        let stages = names.into_iter().zip([verify, compress, cipher, file, connection]).rev();
        stages.max_by_key(|(_, time)| *time).map_or(names[0], |(name, _)| name)
    }
}

/// From a rate to another one, with two digits, which is more than is known of them.
fn range_text(expected: &RatePrediction) -> String {
    let [low, high] = [expected.low, expected.high].map(|rate| {
        let digits = 10_f64.powi((rate.max(1) as f64).log10() as i32 - 1);
        units::value_text((rate as f64 / digits).round() * digits, Unit::BytesPerSecond)
    });
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, unit)), Some((_, high_unit))) if unit == high_unit => format!("{figure} to {high}"),
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

/// Why it was this number of streams, for programs.
#[derive(Serialize)]
struct StreamChoiceRecord {
    speedup: f64,
    no_faster: Option<u32>,
    words: String,
}

/// How far it was compressed, for programs.
#[derive(Serialize)]
struct CompressionRecord {
    #[serde(rename = "bytes_sent")]
    sent: u64,
    ratio: f64,
    level: u8,
    /// How many times as long it would have taken without.
    gain: Option<f64>,
    words: String,
}

/// As data, for programs.
impl Serialize for TransferSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { moved: MovedFiles { files, hard_links, amount, .. }, settings, streams, sent, received } = self;
        let mut record = serializer.serialize_map(None)?;
        record.serialize_entry("files", files)?;
        if *hard_links > 0 {
            record.serialize_entry("hard_links", hard_links)?;
        }
        record.serialize_entry("bytes", &amount.total())?;
        record.serialize_entry("holes", &amount.holes)?;
        record.serialize_entry("resumed", &amount.resumed)?;
        record.serialize_entry("failed", &sent.failed)?;
        record.serialize_entry("seconds", &seconds(sent.nanoseconds))?;
        record.serialize_entry("bytes_per_second", &self.rate())?;
        record.serialize_entry("expected_bytes_per_second", &sent.expected)?;
        record.serialize_entry("verified", &settings.verify)?;
        record.serialize_entry("encrypted", &!settings.plain)?;
        record.serialize_entry("remote_shell", &settings.remote_shell)?;
        record.serialize_entry("synced", &settings.sync)?;
        record.serialize_entry("streams", streams)?;
        if let Some(chosen @ StreamChoice { no_faster, .. }) = sent.chosen {
            let choice = StreamChoiceRecord { speedup: chosen.speedup(), no_faster, words: chosen.to_string() };
            record.serialize_entry("chosen", &choice)?;
        }
        if let Some(compression @ CompressionReport { sent, level, .. }) = sent.compression {
            let (ratio, gain, words) = (compression.ratio(), self.compression_gain(), compression.to_string());
            let words = format!("{words}{}", self.compression_gain_text());
            record.serialize_entry("compression", &CompressionRecord { sent, ratio, level, gain, words })?;
        }
        record.serialize_entry("connection", settings.connection.word())?;
        record.serialize_entry("seconds_flushing", &self.flush_time().map(seconds))?;
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

impl fmt::Display for TransferSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MovedFiles { files, hard_links, amount, .. } = self.moved;
        let links = if hard_links > 0 { units::plural(hard_links, "hard link") } else { String::new() };
        match (files, hard_links) {
            (0, 0) => return out.write_str("moved nothing"),
            (0, _) => return write!(out, "made {links}"),
            _ => {}
        }
        write!(
            out,
            "moved {}{}{links}, {}{}, in {} from connecting to the last byte: {}",
            units::files(files),
            if hard_links > 0 { " and made " } else { "" },
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
            "{}, {}, {}{}{}; {}{}",
            self.connections_text(),
            self.protection_text(),
            if self.settings.verify { "verified" } else { "not verified" },
            self.methods_text(),
            self.compression_text(),
            self.limit_sentence(),
            self.compression_gain_text(),
        )?;
        if let Some(flushed) = self.flush_time() {
            write!(out, "; flushed to the target's disk in {} more", units::seconds(seconds(flushed)))?;
        }
        match self.received.unwritten_bytes {
            Some(bytes) if bytes > 0 => write!(out, "; up to {} not yet on the target's disk", units::bytes(bytes)),
            _ => Ok(()),
        }
    }
}
