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
    /// Sending or receiving bytes of files, waiting included.
    pub connection: u64,
}

/// Does something, and adds the time that it took.
pub(crate) fn timed<T>(sum: &mut u64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    *sum = sum.saturating_add(begun.elapsed().as_nanos() as u64);
    done
}

/// What was moved, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Files in their place.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were not moved.
    pub failed: u64,
    /// Nanoseconds from the sender's first action, connecting included, until the receiver had the last byte.
    pub nanoseconds: u64,
    /// Whether digests were compared.
    pub verified: bool,
    /// Whether the bytes of files were encrypted.
    pub encrypted: bool,
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
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / (self.nanoseconds.max(1) as f64 / 1e9)
    }

    /// All stages. A wait at one end is work at the other, unless both wait: so the connection's share is that of which both
    /// ends say that they sent or received.
    pub fn stages(&self) -> [Stage; 7] {
        let share = |nanoseconds: u64| (nanoseconds as f64 / self.nanoseconds.max(1) as f64).min(1.0);
        let (sender, receiver) = (&self.sender, &self.receiver);
        let shares = [
            ("reading at the sender", sender.file),
            ("hashing at the sender", sender.verify),
            ("encrypting at the sender", sender.cipher),
            ("the connection", sender.connection.min(receiver.connection)),
            ("decrypting at the receiver", receiver.cipher),
            ("hashing at the receiver", receiver.verify),
            ("writing at the receiver", receiver.file),
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
    failed: u64,
    seconds: f64,
    bytes_per_second: f64,
    verified: bool,
    encrypted: bool,
    stages: [Stage; 7],
    sentence: String,
}

impl From<&Summary> for Record {
    fn from(summary: &Summary) -> Self {
        let Summary { files, bytes, failed, verified, encrypted, .. } = *summary;
        let (seconds, bytes_per_second) = (summary.nanoseconds as f64 / 1e9, summary.rate());
        let (stages, sentence) = (summary.stages(), summary.to_string());
        Self { files, bytes, failed, seconds, bytes_per_second, verified, encrypted, stages, sentence }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files == 0 {
            return out.write_str("moved nothing");
        }
        let files = if self.files == 1 { "1 file".to_owned() } else { format!("{} files", units::count(self.files)) };
        write!(
            out,
            "moved {files}, {}, in {} from connecting to the last byte: {}, {}, {}; ",
            units::bytes(self.bytes),
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
            Times { file, verify, cipher, connection }
        };
        let (sender, receiver) = (times(sender), times(receiver));
        let (files, bytes, failed, nanoseconds) = (1, 1_000_000_000, 0, 2_000_000_000);
        Summary { files, bytes, failed, nanoseconds, verified: true, encrypted: true, sender, receiver }
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
        let even = Summary { files: 3, verified: false, ..summary([300; 4], [250; 4]) };
        assert!(even.to_string().ends_with("not verified; no stage was above 30 %"), "{even}");
        assert!(even.to_string().starts_with("moved 3 files, "), "{even}");
    }

    /// The other end's times are its own, and may be anything.
    #[test]
    fn no_times_break_it() {
        let most = Times { file: u64::MAX, verify: u64::MAX, cipher: u64::MAX, connection: u64::MAX };
        for times in [Times::default(), most] {
            let odd = Summary { nanoseconds: 0, sender: times, receiver: times, ..summary([0; 4], [0; 4]) };
            assert!(odd.stages().iter().all(|stage| (0.0..=1.0).contains(&stage.share)), "{odd}");
        }
    }
}
