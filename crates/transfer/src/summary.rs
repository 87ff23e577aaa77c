//! What both ends say at the end: what was moved, how fast, and which stage was busiest.

use std::fmt;
use std::time::Instant;

use kelvin_model::{Unit, units};
use serde::{Deserialize, Serialize};

/// The share from which on a stage is named as the one that limited a transfer.
const LIMITING: f64 = 0.6;

/// Nanoseconds that one end spent in its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Reading or writing files.
    pub file: u64,
    /// Hashing.
    pub verify: u64,
    /// Encrypting or decrypting.
    pub cipher: u64,
    /// Sending or receiving, waiting included.
    pub connection: u64,
    /// Flushing to the device.
    pub sync: u64,
    /// Waiting so that a limit is kept.
    pub limit: u64,
}

impl Times {
    /// Adds those of a part.
    pub(crate) fn add(&mut self, part: &Self) {
        for (sum, more) in [
            (&mut self.file, part.file),
            (&mut self.verify, part.verify),
            (&mut self.cipher, part.cipher),
            (&mut self.connection, part.connection),
            (&mut self.sync, part.sync),
            (&mut self.limit, part.limit),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Does something, and adds the time that it took.
pub(crate) fn timed<T>(sum: &mut u64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    *sum = sum.saturating_add(begun.elapsed().as_nanos() as u64);
    done
}

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

/// What was moved, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Files in their place.
    pub files: u64,
    /// Their bytes.
    pub amount: Amount,
    /// Files that were not moved.
    pub failed: u64,
    /// Nanoseconds from the sender's first action, connecting included, until the receiver had the last byte.
    pub nanoseconds: u64,
    /// Whether digests were compared.
    pub verified: bool,
    /// Whether the bytes of files were encrypted.
    pub encrypted: bool,
    /// Whether all was flushed to its device.
    pub synced: bool,
    /// The sender's stages.
    pub sender: Times,
    /// The receiver's stages.
    pub receiver: Times,
}

/// A stage and its share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// What it is, for people and programs.
    pub name: &'static str,
    /// Its share, 0 to 1.
    pub share: f64,
}

impl Summary {
    /// Bytes that were sent per second.
    pub fn rate(&self) -> f64 {
        self.amount.moved as f64 / (self.nanoseconds.max(1) as f64 / 1e9)
    }

    /// Which bytes were not sent, in words.
    fn of_which(&self) -> String {
        let Amount { holes, resumed, .. } = self.amount;
        let some = |bytes: u64, what| (bytes > 0).then(|| format!("{} {what}", units::bytes(bytes)));
        let parts: Vec<String> =
            [some(resumed, "there from before"), some(holes, "of holes")].into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

    /// All stages. A wait at one end is work at the other, unless both wait: so the connection's share is that of which both
    /// ends say that they sent or received.
    pub fn stages(&self) -> [Stage; 9] {
        let share = |nanoseconds: u64| (nanoseconds as f64 / self.nanoseconds.max(1) as f64).min(1.0);
        let (sender, receiver) = (&self.sender, &self.receiver);
        let shares = [
            ("reading at the sender", sender.file),
            ("hashing at the sender", sender.verify),
            ("encrypting at the sender", sender.cipher),
            ("the limit that was set", sender.limit),
            ("the connection", sender.connection.min(receiver.connection)),
            ("decrypting at the receiver", receiver.cipher),
            ("hashing at the receiver", receiver.verify),
            ("writing at the receiver", receiver.file),
            ("flushing at the receiver", receiver.sync),
        ];
        shares.map(|(name, nanoseconds)| Stage { name, share: share(nanoseconds) })
    }

    /// The busiest one.
    pub fn busiest(&self) -> Stage {
        let [first, rest @ ..] = self.stages();
        rest.into_iter().fold(first, |most, stage| if stage.share > most.share { stage } else { most })
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
    verified: bool,
    encrypted: bool,
    synced: bool,
    stages: [Stage; 9],
    sentence: String,
}

impl From<&Summary> for Record {
    fn from(summary: &Summary) -> Self {
        let Summary { files, amount, failed, verified, encrypted, synced, .. } = *summary;
        let (seconds, bytes_per_second) = (summary.nanoseconds as f64 / 1e9, summary.rate());
        let (stages, sentence) = (summary.stages(), summary.to_string());
        let Amount { holes, resumed, .. } = amount;
        let bytes = amount.whole();
        Self {
            files,
            bytes,
            holes,
            resumed,
            failed,
            seconds,
            bytes_per_second,
            verified,
            encrypted,
            synced,
            stages,
            sentence,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files == 0 {
            return out.write_str("moved nothing");
        }
        let files = units::files(self.files);
        write!(
            out,
            "moved {files}, {}{}, in {} from connecting to the last byte: {}, {}, {}; ",
            units::bytes(self.amount.whole()),
            self.of_which(),
            units::seconds(self.nanoseconds as f64 / 1e9),
            units::plain(self.rate(), Unit::BytesPerSecond),
            if self.encrypted { "encrypted" } else { "not encrypted" },
            if self.verified { "verified" } else { "not verified" },
        )?;
        let Stage { name, share } = self.busiest();
        let percent = (share * 100.0).round();
        if share > LIMITING {
            write!(out, "the busiest stage was {name}, {percent:.0} % of the time")
        } else {
            write!(out, "no stage was above {percent:.0} %")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(sender: [u64; 4], receiver: [u64; 4]) -> Summary {
        let thousandth = |share| share * 2_000_000;
        let times = |shares: [u64; 4]| {
            let [file, verify, cipher, connection] = shares.map(thousandth);
            Times { file, verify, cipher, connection, ..Times::default() }
        };
        let (sender, receiver) = (times(sender), times(receiver));
        let (files, amount, failed, nanoseconds) = (1, Amount::sent(1_000_000_000), 0, 2_000_000_000);
        Summary { files, amount, failed, nanoseconds, verified: true, encrypted: true, synced: false, sender, receiver }
    }

    #[test]
    fn the_busiest_stage_is_named_and_waiting_for_it_is_not() {
        let busiest = |sender, receiver| summary(sender, receiver).busiest().name;
        // A slow target disk: the sender waits to send.
        assert_eq!(busiest([50, 20, 30, 890], [900, 20, 30, 40]), "writing at the receiver");
        // A slow source disk: the receiver waits to receive.
        assert_eq!(busiest([910, 20, 30, 30], [20, 20, 30, 930]), "reading at the sender");
        // A slow link: both wait.
        assert_eq!(busiest([10, 20, 30, 900], [20, 20, 30, 850]), "the connection");
        assert_eq!(busiest([10, 20, 700, 200], [20, 20, 100, 850]), "encrypting at the sender");
    }

    #[test]
    fn the_sentence_says_what_how_fast_and_what_limited_it() {
        let slow = summary([50, 20, 30, 890], [900, 20, 30, 40]);
        assert_eq!(
            slow.to_string(),
            "moved 1 file, 954 MiB, in 2.00 s from connecting to the last byte: 500 MB/s, encrypted, verified; the busiest \
             stage was writing at the receiver, 90 % of the time"
        );
        let partly = Amount { holes: 1 << 20, resumed: 3 << 20, moved: 4 << 20 };
        let partly = Summary { amount: partly, ..slow };
        assert!(
            partly.to_string().starts_with("moved 1 file, 8 MiB (3 MiB there from before, 1 MiB of holes), in 2.00 s")
        );
        let even = Summary { files: 3, verified: false, ..summary([300; 4], [250; 4]) };
        assert!(even.to_string().ends_with("not verified; no stage was above 30 %"), "{even}");
        assert!(even.to_string().starts_with("moved 3 files, "), "{even}");
    }

    /// The other end's times are its own, and may be anything.
    #[test]
    fn no_times_break_it() {
        let all = u64::MAX;
        let most = Times { file: all, verify: all, cipher: all, connection: all, sync: all, limit: all };
        for times in [Times::default(), most] {
            let odd = Summary { nanoseconds: 0, sender: times, receiver: times, ..summary([0; 4], [0; 4]) };
            assert!(odd.stages().iter().all(|stage| (0.0..=1.0).contains(&stage.share)), "{odd}");
        }
    }
}
