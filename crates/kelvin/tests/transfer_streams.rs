//! How many streams `kelvin send` goes on with by itself: more where each is bound by its window, one where it fills the link; what
//! arrives while that is found out; and how a window that holds one stream back is named.

mod link;
mod place;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output};
use std::time::Duration;

use kelvin_testing::Missing;
use link::{Link, Way};
use place::{PATIENCE, Place, finished, names, stderr, stdout, within};
use serde_json::Value;

/// Two hosts with a place, of which the far one receives into `in` there.
struct Hosts {
    place: Place,
    link: Link,
}

/// A receiver that is killed in the end.
struct Running {
    child: Child,
    to: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Hosts {
    /// With a file of so many bytes to be sent.
    fn new(link: Link, bytes: usize) -> Self {
        let place = Place::new();
        place.file("large", bytes);
        fs::create_dir(place.path().join("in")).unwrap();
        let token = place.path().join("token");
        fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        Self { place, link }
    }

    fn receiver(&self) -> Running {
        let listen = format!("{}:0", Link::FAR);
        let receive = ["receive", "in", "--token-file", "token", "--listen", &listen];
        let mut child = Link::kelvin(&self.place, &self.link.far, &receive).spawn().unwrap();
        let mut to = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut to).unwrap();
        Running { child, to: to.trim().to_owned() }
    }

    fn sender(&self, to: &str, options: &[&str]) -> Command {
        let send = [&["send", "large", to, "--token-file", "token"], options].concat();
        Link::kelvin(&self.place, &self.link.near, &send)
    }

    /// Sends the file, which arrives; what was said.
    fn sent(&self, options: &[&str]) -> Output {
        let receiver = self.receiver();
        let output = finished(self.sender(&receiver.to, options).spawn().unwrap(), &["send"]);
        assert!(output.status.success(), "{}", stderr(&output));
        self.assert_arrived();
        output
    }

    fn assert_arrived(&self) {
        let [from, to] = ["large", "in/large"].map(|name| fs::read(self.place.path().join(name)).unwrap());
        assert!(from == to, "what has arrived differs");
        assert_eq!(names(&self.place.path().join("in")), ["large"]);
    }

    /// That in one of some attempts as many are chosen as is right; in each all arrives.
    fn assert_chosen(&self, options: &[&str], is_right: impl Fn(u64, &str) -> bool) {
        let mut said = Vec::new();
        for _ in 0..ATTEMPTS {
            let (streams, sentence) = self.chosen(options);
            if is_right(streams, &sentence) {
                return;
            }
            said.push(sentence);
            fs::remove_file(self.place.path().join("in/large")).unwrap();
        }
        panic!("{said:?}");
    }

    /// How many streams were chosen, and in what words.
    fn chosen(&self, options: &[&str]) -> (u64, String) {
        let output = self.sent(&[&["--json"], options].concat());
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (why, sentence) = (said["chosen"]["words"].as_str(), said["sentence"].as_str().unwrap().to_owned());
        let why = why.unwrap_or_else(|| panic!("nothing was compared: {sentence}"));
        assert!(sentence.contains(&format!(" ({why}), ")), "{sentence}");
        (said["streams"].as_u64().unwrap(), sentence)
    }
}

/// Bytes of the file: so many that two streams carry them in some seconds, in which they are compared with one; and for a slower link, or
/// for what is interrupted three times.
const LARGE: usize = 80 << 20;
const SMALLER: usize = 48 << 20;
/// What a window of 128 KiB lets through in some 5 s, beside which the beginning and the end are short.
const HELD_BACK: usize = 16 << 20;
/// What gets through in some seconds where one frame of a hundred is lost: with Reno 900 kB/s of a round trip of 20 ms (Mathis et al. 1997).
const LOSSY: usize = 6 << 20;

/// Attempts at a choice: other work on this machine may take the processor from an end for as long as a moment lasts.
const ATTEMPTS: usize = 3;

/// Buffers of 512 KiB over a round trip of 40 ms: one connection carries some 4 MB/s of what the link could.
fn far_away(bytes: usize) -> Result<Hosts, Missing> {
    let link = Link::delayed(Duration::from_millis(20))?;
    link.limit_buffers(512 << 10)?;
    Ok(Hosts::new(link, bytes))
}

/// A link that one stream fills with little work, whose queue is short, since buffers are: what is asked is answered soon.
fn narrow() -> Result<Hosts, Missing> {
    let link = Link::new()?;
    link.limit_buffers(256 << 10)?;
    link.limit_near("40mbit")?;
    Ok(Hosts::new(link, SMALLER))
}

#[test]
fn where_a_stream_is_bound_by_its_window_more_are_chosen() {
    let hosts = match far_away(LARGE) {
        Ok(hosts) => hosts,
        Err(missing) => return missing.skips("the choice of streams over a long way"),
    };
    let is_right = |streams, sentence: &str| {
        let words = format!(", over {streams} streams (");
        streams > 1 && sentence.contains(&words) && sentence.contains(" times the rate of one")
    };
    hosts.assert_chosen(&[], is_right);
}

#[test]
fn where_one_stream_fills_the_link_it_stays_alone() {
    let hosts = match narrow() {
        Ok(hosts) => hosts,
        Err(missing) => return missing.skips("the choice of streams over a slow link"),
    };
    let words = ", over one stream (2 were no faster), ";
    hosts.assert_chosen(&["--streams", "auto"], |streams, sentence| streams == 1 && sentence.contains(words));
}

/// Sends over a round trip of 40 ms with one kind of buffers limited on one host, and wants that named, with its size.
fn assert_held_back(limit: impl Fn(&Link) -> Result<(), Missing>, name: &str, skipped: &str) {
    let hosts = match Link::delayed(Duration::from_millis(20)).and_then(|link| limit(&link).map(|()| link)) {
        Ok(link) => Hosts::new(link, HELD_BACK),
        Err(missing) => return missing.skips(skipped),
    };
    let mut said = Vec::new();
    for _ in 0..ATTEMPTS {
        let output = hosts.sent(&["--json", "--streams", "1"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sentence = found["sentence"].as_str().unwrap();
        if let Some((_, size)) = sentence.split_once(&format!("limited by {name}: ")) {
            // A round trip is at least what was planted; the window is what of the buffer is for data.
            let [size, unit, "over", trip, "ms,", ..] = size.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{sentence}")
            };
            let (size, trip): (f64, f64) = (size.parse().unwrap(), trip.parse().unwrap());
            assert!(unit == "KiB" && (16.0..=256.0).contains(&size) && (40.0..80.0).contains(&trip), "{sentence}");
            return;
        }
        assert!(!sentence.contains("limited by the link"), "{sentence}: {}", found["carried"]);
        said.push(format!("{sentence}: {}", found["carried"]));
        fs::remove_file(hosts.place.path().join("in/large")).unwrap();
    }
    panic!("{said:?}");
}

#[test]
fn a_receive_window_that_is_too_small_for_the_round_trip_is_named() {
    let limit = |link: &Link| Link::limit_buffer(&link.far, "tcp_rmem", 256 << 10);
    assert_held_back(limit, "the receiver's window", "a window that limits a transfer");
}

#[test]
fn a_send_buffer_that_is_too_small_for_the_round_trip_is_named() {
    let limit = |link: &Link| Link::limit_buffer(&link.near, "tcp_wmem", 256 << 10);
    assert_held_back(limit, "the sender's buffer", "a send buffer that limits a transfer");
}

/// One frame of a hundred that the near host sends is lost, over a round trip of 20 ms: nothing queues.
#[test]
fn losses_that_hold_a_stream_back_are_named_and_not_a_full_link() {
    let way = |loses: f64| Way { takes: Duration::from_millis(10), loses, troubles: 0.0 };
    let hosts = match Link::relayed([way(0.01), way(0.0)]) {
        Ok(link) => Hosts::new(link, LOSSY),
        Err(missing) => return missing.skips("losses that limit a transfer"),
    };
    let mut said = Vec::new();
    for _ in 0..ATTEMPTS {
        let output = hosts.sent(&["--json", "--streams", "1"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sentence = found["sentence"].as_str().unwrap();
        if sentence.contains("limited by losses on the link, ")
            && sentence.contains(" % of the segments were sent again")
        {
            return;
        }
        assert!(!sentence.contains("limited by the link, which was full"), "{sentence}: {}", found["carried"]);
        said.push(format!("{sentence}: {}", found["carried"]));
        fs::remove_file(hosts.place.path().join("in/large")).unwrap();
    }
    panic!("{said:?}");
}

/// Bytes on the disk of what is arriving.
fn arriving(hosts: &Hosts) -> u64 {
    let entries = fs::read_dir(hosts.place.path().join("in")).unwrap().flatten();
    let found = entries.filter_map(|entry| entry.metadata().ok());
    found.map(|found| std::os::unix::fs::MetadataExt::blocks(&found) * 512).sum()
}

#[test]
fn either_end_can_be_killed_while_streams_are_chosen_and_the_next_one_goes_on() {
    let hosts = match far_away(SMALLER) {
        Ok(hosts) => hosts,
        Err(missing) => return missing.skips("an end that is killed while streams are chosen"),
    };
    for kills_sender in [true, false, true] {
        let mut receiver = hosts.receiver();
        let before = arriving(&hosts);
        let mut sender = hosts.sender(&receiver.to, &[]).spawn().unwrap();
        assert!(within(PATIENCE, || arriving(&hosts) > before + (9 << 20)), "nothing arrives");
        if kills_sender {
            sender.kill().unwrap();
        } else {
            receiver.child.kill().unwrap();
        }
        let output = finished(sender, &["send"]);
        assert!(!output.status.success() && !hosts.place.path().join("in/large").exists());
    }
    let output = hosts.sent(&[]);
    assert!(stdout(&output).contains(" there from before), in "), "{}", stdout(&output));
}
