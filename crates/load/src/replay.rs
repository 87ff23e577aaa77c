//! The requests of an access log, in the common or the combined format, and when each came.

use std::time::Duration;

use http::uri::PathAndQuery;
use jiff::fmt::strtime;

use crate::gate::LONGEST_TIME;

/// Nanoseconds of a second: the logs have no finer time.
const SECOND: f64 = 1e9;

/// What a log asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Path and query of each request.
    pub paths: Vec<String>,
    /// When each is due, in nanoseconds from the first second of the log on, in order.
    pub times: Vec<u64>,
    /// Lines that ask for something else than GET, whose bodies no log has, or that are no requests.
    pub left_out: u64,
}

impl Replay {
    /// Reads a log; it is sent so many times as fast as it came. Requests of one second are spread evenly over it.
    ///
    /// # Errors
    /// A log without any request that can be sent, or with more than a week of them.
    pub fn read(log: &str, speed: f64) -> Result<Self, String> {
        let mut requests: Vec<(i64, &str)> = log.lines().filter_map(request).collect();
        // A log is written when answers are over, so its times may be out of order.
        requests.sort_by_key(|&(second, _)| second);
        let &(first, _) = requests.first().ok_or("it has no GET request in the common or combined log format")?;
        let mut replay = Self { left_out: (log.lines().count() - requests.len()) as u64, ..Self::default() };
        for of_second in requests.chunk_by(|one, other| one.0 == other.0) {
            for (index, &(second, path)) in of_second.iter().enumerate() {
                let at = (second - first) as f64 + index as f64 / of_second.len() as f64;
                replay.times.push((at * SECOND / speed) as u64);
                replay.paths.push(path.to_owned());
            }
        }
        if replay.duration() > LONGEST_TIME {
            return Err("it would take more than a week".into());
        }
        Ok(replay)
    }

    /// How long it takes.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.times.last().map_or(0, |last| last.saturating_add(1)))
    }
}

/// The second and the path of a line such as
/// `192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326`.
fn request(line: &str) -> Option<(i64, &str)> {
    let (time, rest) = line.split_once('[')?.1.split_once(']')?;
    let second = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).ok()?.to_timestamp().ok()?.as_second();
    let asked = rest.split_once('"')?.1.split_once('"')?.0;
    let mut words = asked.split(' ');
    let path = words.next().filter(|&method| method == "GET").and_then(|_| words.next())?;
    let is_path = path.starts_with('/') && path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
    is_path.then_some((second, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"192.0.2.1 - frank [10/Oct/2000:13:55:38 -0700] "GET /c HTTP/1.0" 200 2326
192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326 "http://ref/" "Agent \"x\""
::1 - - [10/Oct/2000:20:55:36 +0000] "GET /b HTTP/1.1" 304 -
::1 - - [10/Oct/2000:20:55:36 +0000] "POST /form HTTP/1.1" 200 1
::1 - - [10/Oct/2000:20:55:36 +0000] "\x16\x03" 400 1
no line of a log
"#;

    #[test]
    fn requests_come_at_the_pace_of_the_log_or_a_multiple_of_it() {
        let replay = Replay::read(LOG, 1.0).unwrap();
        assert_eq!(replay.paths, ["/a.gif?x=1", "/b", "/c"]);
        assert_eq!(replay.times, [0, 500_000_000, 2_000_000_000]);
        assert_eq!(replay.left_out, 3);
        assert_eq!(replay.duration(), Duration::from_nanos(2_000_000_001));
        assert_eq!(Replay::read(LOG, 4.0).unwrap().times, [0, 125_000_000, 500_000_000]);
    }

    #[test]
    fn a_log_without_requests_is_refused() {
        for log in ["", "nothing\n", "::1 - - [10/Oct/2000:20:55:36 +0000] \"POST /form HTTP/1.1\" 200 1\n"] {
            assert!(Replay::read(log, 1.0).is_err(), "{log}");
        }
    }

    #[test]
    fn a_log_of_years_is_refused_unless_it_is_sent_fast() {
        let line = |year: &str| format!("::1 - - [10/Oct/{year}:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1\n");
        let log = line("0001") + &line("9998");
        assert!(Replay::read(&log, 1.0).unwrap_err().contains("a week") && Replay::read(&log, 0.001).is_err());
        assert!(Replay::read(&log, 1e6).is_ok());
    }
}
