//! How many streams `kelvin send` goes on with by itself: more where each is bound by its window, one where it fills the link; what
//! arrives while that is found out; and how a window that holds one stream back is named.

mod link;
mod test_dir;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output};
use std::time::Duration;

use kelvin_testing::MissingRequirement;
use link::{Impairment, Link};
use serde_json::Value;
use test_dir::{HANG_TIMEOUT, TestDir, is_met_within, names, stderr, stdout, wait_for_output};

/// Two hosts and a directory, of which the far one receives into `in` there.
struct Hosts {
    dir: TestDir,
    link: Link,
}

/// A receiver that is killed in the end.
struct TestReceiver {
    child: Child,
    address: String,
}

impl Drop for TestReceiver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Hosts {
    /// With a file of this many bytes to be sent.
    fn new(link: Link, bytes: usize) -> Self {
        let dir = TestDir::new();
        dir.file("large", bytes);
        fs::create_dir(dir.path().join("in")).unwrap();
        let token = dir.path().join("token");
        fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        Self { dir, link }
    }

    fn receiver(&self) -> TestReceiver {
        let listen = format!("{}:0", Link::FAR_ADDRESS);
        let receive = ["receive", "in", "--token-file", "token", "--listen", &listen];
        let mut child = Link::kelvin(&self.dir, &self.link.far_host, &receive).spawn().unwrap();
        let mut to = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut to).unwrap();
        TestReceiver { child, address: to.trim().to_owned() }
    }

    fn sender(&self, to: &str, options: &[&str]) -> Command {
        let send = [&["send", "large", to, "--token-file", "token"], options].concat();
        Link::kelvin(&self.dir, &self.link.near_host, &send)
    }

    /// Sends the file, which arrives; returns the output.
    fn send(&self, options: &[&str]) -> Output {
        let receiver = self.receiver();
        let output = wait_for_output(self.sender(&receiver.address, options).spawn().unwrap(), &["send"]);
        assert!(output.status.success(), "{}", stderr(&output));
        self.assert_arrived();
        output
    }

    fn assert_arrived(&self) {
        let [from, to] = ["large", "in/large"].map(|name| fs::read(self.dir.path().join(name)).unwrap());
        assert!(from == to, "what has arrived differs");
        assert_eq!(names(&self.dir.path().join("in")), ["large"]);
    }

    /// That in one of some attempts as many are chosen as is right; in each all arrives.
    fn assert_chosen(&self, options: &[&str], is_expected: impl Fn(u64, &str) -> bool) {
        let mut sentences = Vec::new();
        for _ in 0..ATTEMPTS {
            let (streams, sentence) = self.chosen_streams(options);
            if is_expected(streams, &sentence) {
                return;
            }
            sentences.push(sentence);
            fs::remove_file(self.dir.path().join("in/large")).unwrap();
        }
        panic!("{sentences:?}");
    }

    /// How many streams were chosen, and in what words.
    fn chosen_streams(&self, options: &[&str]) -> (u64, String) {
        let output = self.send(&[&["--json"], options].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (reason, sentence) = (report["chosen"]["words"].as_str(), report["sentence"].as_str().unwrap().to_owned());
        let reason = reason.unwrap_or_else(|| panic!("nothing was compared: {sentence}"));
        assert!(sentence.contains(&format!(" ({reason}), ")), "{sentence}");
        (report["streams"].as_u64().unwrap(), sentence)
    }
}

/// Bytes of the file: so many that two streams carry them in some seconds, in which they are compared with one; and for a slower link, or
/// for what is interrupted three times.
const LARGE_BYTES: usize = 80 << 20;
const SMALLER_BYTES: usize = 48 << 20;
/// What a window of 128 KiB lets through in some 5 s, compared with which the beginning and the end are short.
const WINDOW_LIMITED_BYTES: usize = 16 << 20;
/// What gets through in some seconds where one frame of a hundred is lost: with Reno 900 kB/s of a round trip of 20 ms (Mathis et al. 1997).
const LOSSY_LINK_BYTES: usize = 6 << 20;

/// Attempts at a choice: other work on this machine may take the processor from an end for as long as a moment lasts.
const ATTEMPTS: usize = 3;

/// Buffers of 512 KiB over a round trip of 40 ms: one connection carries some 4 MB/s of what the link could.
fn long_link(bytes: usize) -> Result<Hosts, MissingRequirement> {
    let link = Link::with_delay(Duration::from_millis(20))?;
    link.limit_buffers(512 << 10)?;
    Ok(Hosts::new(link, bytes))
}

/// A link that one stream fills with little work, whose queue is short, since buffers are: what is asked is answered soon.
fn slow_link() -> Result<Hosts, MissingRequirement> {
    let link = Link::new()?;
    link.limit_buffers(256 << 10)?;
    link.limit_near("40mbit")?;
    Ok(Hosts::new(link, SMALLER_BYTES))
}

#[test]
fn window_bound_stream_gets_more_streams() {
    let hosts = match long_link(LARGE_BYTES) {
        Ok(hosts) => hosts,
        Err(missing) => return missing.report_skip("the choice of streams over a long way"),
    };
    let is_expected = |streams, sentence: &str| {
        let words = format!(", over {streams} streams (");
        streams > 1 && sentence.contains(&words) && sentence.contains(" times the rate of one")
    };
    hosts.assert_chosen(&[], is_expected);
}

#[test]
fn full_link_keeps_one_stream() {
    let hosts = match slow_link() {
        Ok(hosts) => hosts,
        Err(missing) => return missing.report_skip("the choice of streams over a slow link"),
    };
    let words = ", over one stream (2 were no faster), ";
    hosts.assert_chosen(&["--streams", "auto"], |streams, sentence| streams == 1 && sentence.contains(words));
}

/// Sends over a round trip of 40 ms with one kind of buffers limited on one host, and wants that named, with its size.
fn assert_held_back(limit: impl Fn(&Link) -> Result<(), MissingRequirement>, name: &str, skipped: &str) {
    let hosts = match Link::with_delay(Duration::from_millis(20)).and_then(|link| limit(&link).map(|()| link)) {
        Ok(link) => Hosts::new(link, WINDOW_LIMITED_BYTES),
        Err(missing) => return missing.report_skip(skipped),
    };
    let mut sentences = Vec::new();
    for _ in 0..ATTEMPTS {
        let output = hosts.send(&["--json", "--streams", "1"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sentence = report["sentence"].as_str().unwrap();
        if let Some((_, size)) = sentence.split_once(&format!("limited by {name}: ")) {
            // A round trip is at least what was planted; the window is what of the buffer is for data.
            let [size, unit, "over", trip, "ms,", ..] = size.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{sentence}")
            };
            let (size, trip): (f64, f64) = (size.parse().unwrap(), trip.parse().unwrap());
            assert!(unit == "KiB" && (16.0..=256.0).contains(&size) && (40.0..80.0).contains(&trip), "{sentence}");
            return;
        }
        assert!(!sentence.contains("limited by the link"), "{sentence}: {}", report["carried"]);
        sentences.push(format!("{sentence}: {}", report["carried"]));
        fs::remove_file(hosts.dir.path().join("in/large")).unwrap();
    }
    panic!("{sentences:?}");
}

#[test]
fn small_receive_window_is_named() {
    let limit = |link: &Link| Link::limit_buffer(&link.far_host, "tcp_rmem", 256 << 10);
    assert_held_back(limit, "the receiver's window", "a window that limits a transfer");
}

#[test]
fn small_send_buffer_is_named() {
    let limit = |link: &Link| Link::limit_buffer(&link.near_host, "tcp_wmem", 256 << 10);
    assert_held_back(limit, "the sender's buffer", "a send buffer that limits a transfer");
}

/// One frame of a hundred that the near host sends is lost, over a round trip of 20 ms: nothing queues.
#[test]
fn packet_loss_is_named_as_limit() {
    let impairment = |loss: f64| Impairment { delay: Duration::from_millis(10), loss, reordering: 0.0 };
    let hosts = match Link::with_impairments([impairment(0.01), impairment(0.0)]) {
        Ok(link) => Hosts::new(link, LOSSY_LINK_BYTES),
        Err(missing) => return missing.report_skip("losses that limit a transfer"),
    };
    let mut sentences = Vec::new();
    for _ in 0..ATTEMPTS {
        let output = hosts.send(&["--json", "--streams", "1"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sentence = report["sentence"].as_str().unwrap();
        if sentence.contains("limited by losses on the link, ")
            && sentence.contains(" % of the segments were retransmitted")
        {
            return;
        }
        assert!(!sentence.contains("limited by the link, which was full"), "{sentence}: {}", report["carried"]);
        sentences.push(format!("{sentence}: {}", report["carried"]));
        fs::remove_file(hosts.dir.path().join("in/large")).unwrap();
    }
    panic!("{sentences:?}");
}

/// Bytes on the disk of what is arriving.
fn arriving_bytes(hosts: &Hosts) -> u64 {
    let entries = fs::read_dir(hosts.dir.path().join("in")).unwrap().flatten();
    let metadata = entries.filter_map(|entry| entry.metadata().ok());
    metadata.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
}

#[test]
fn kill_during_stream_tuning_is_resumable() {
    let hosts = match long_link(SMALLER_BYTES) {
        Ok(hosts) => hosts,
        Err(missing) => return missing.report_skip("an end that is killed while streams are chosen"),
    };
    for kills_sender in [true, false, true] {
        let mut receiver = hosts.receiver();
        let before = arriving_bytes(&hosts);
        let mut sender = hosts.sender(&receiver.address, &[]).spawn().unwrap();
        assert!(is_met_within(HANG_TIMEOUT, || arriving_bytes(&hosts) > before + (9 << 20)), "nothing arrives");
        if kills_sender {
            sender.kill().unwrap();
        } else {
            receiver.child.kill().unwrap();
        }
        let output = wait_for_output(sender, &["send"]);
        assert!(!output.status.success() && !hosts.dir.path().join("in/large").exists());
    }
    let output = hosts.send(&[]);
    assert!(stdout(&output).contains(" there from before), in "), "{}", stdout(&output));
}
