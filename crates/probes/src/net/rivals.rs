//! The same local TCP stream by kelvin and by iperf3, in turn.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which differ in what they do around the work.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Stdio};
use std::time::Duration;

use kelvin_catalogue::net::{BESIDE_RIVALS_TCP, MESSAGE, RIVALS_TCP, RIVALS_TCP_KELVIN, RIVALS_TCP_OTHER, SendMethod};
use kelvin_catalogue::{Placement, Rival};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::net;
use kelvin_sys::spawn::of_process;

use super::bulk::{Bulk, Ends, Plan};
use super::link::{Link, Protocol};
use super::messages::message;
use crate::os::ipc::partner_cpu;
use crate::program::{Output, Program, as_fast, in_turn};

pub(super) static PROBE: Probe = Probe {
    id: RIVALS_TCP.id.as_str(),
    summary: "A local TCP stream by kelvin and by iperf3, in turn on the same CPUs (--rivals)",
    kind: ProbeKind::Study,
    method: Method {
        how: "One stream over the loopback device for a second, in messages of 128 KiB, from one process to another, both on \
              one CPU or each on its own: by kelvin, as in net.bandwidth.tcp, and by iperf3 (--affinity, --length, \
              --congestion with the one that kelvin's socket has), one right after the other, in an order that alternates \
              from round to round. Both count what arrived, from the beginning on, the first rise included. The ratio is \
              that of the two rates of a round. iperf3's version is noted. Without iperf3 it is skipped, with the name of \
              its Debian package.",
        prediction: "1, as the same calls move the same bytes. Predicted range: a factor of 1.25 either way, as each counts \
                     and waits in its own way between them. The rates themselves are not predicted here: \
                     net.bandwidth.tcp predicts kelvin's.",
        not_for: "Ranking of programs. Absolute rates, which vary over time by more than the two sides differ.",
        pitfalls: &[
            "Another congestion control: iperf3 alone takes the system's, which may pace itself. Here both use the same one.",
            "Placement left to the scheduler: the two ends of iperf3 are pinned as kelvin's are.",
            "The sender's rate taken for what arrived: iperf3's receiver counts.",
        ],
        sources: &["iperf3(1); its JSON output: end.sum_received"],
    },
    metrics: &[&RIVALS_TCP, &RIVALS_TCP_KELVIN, &RIVALS_TCP_OTHER],
    inputs: &[],
    cases,
    run,
    predict,
};

/// Bytes of a message: what iperf3 sends at a time by itself.
const BYTES: u64 = 128 << 10;
/// Time of a side: the least that iperf3 can be asked for.
const SIDE: Duration = Duration::from_secs(1);
/// How often iperf3 is tried until its server listens, and the pause before each further time.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(25);
/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.25;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[Placement::TwoCpus][..] } else { Placement::ALL };
    placements.iter().map(|&placement| Case::new().at(Rival::Iperf3).with(MESSAGE, BYTES).at(placement)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let iperf = Program::find(Rival::Iperf3)?;
    let ends = Ends { sender: bench.cpu(), receiver: partner_cpu(bench, case)? };
    let message = message(case)?;
    let pair = Link::pair(Protocol::Tcp).map_err(cannot_connect)?;
    let control = net::congestion_control(&pair.0).map_err(cannot_connect)?;
    let stream = Stream { ends, message, control: &control };
    let [ours, theirs] = in_turn(bench, || stream.ours(pair), || stream.by(&iperf))?;
    bench.note(format!("{} against kelvin, in messages of {message} bytes under {control}", iperf.words()));
    bench.record(BESIDE_RIVALS_TCP.ratio, vec![ours / theirs]);
    bench.note("what had arrived after a second");
    bench.record(BESIDE_RIVALS_TCP.kelvin, vec![ours]);
    bench.note("by its receiver's count");
    bench.record(BESIDE_RIVALS_TCP.other, vec![theirs]);
    Ok(())
}

fn cannot_connect(error: kelvin_sys::Error) -> Stop {
    Stop::fail(format!("cannot connect: {error}"))
}

/// The work of both sides.
struct Stream<'a> {
    ends: Ends,
    message: usize,
    control: &'a str,
}

impl Stream<'_> {
    /// Bytes per second by kelvin.
    fn ours(&self, pair: (Link, Link)) -> Result<f64, Stop> {
        let plan =
            Plan { protocol: Protocol::Tcp, way: SendMethod::Send, message: self.message, streams: vec![self.ends] };
        let bulk = Bulk::over(vec![pair], plan)?;
        let before = bulk.totals()?;
        std::thread::sleep(SIDE);
        let rate = bulk.totals()?.rate_since(&before);
        bulk.finish()?;
        Ok(rate)
    }

    /// Bytes per second by iperf3.
    fn by(&self, iperf: &Program) -> Result<f64, Stop> {
        // A port that is free now; if another takes it first, the server says so.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let here = Ipv4Addr::LOCALHOST.to_string();
        let mut server = iperf.command();
        server.args(["--server", "--one-off", "--bind", &here, "--port", &port]);
        server.args(["--affinity", &self.ends.receiver.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let cannot = |error| Stop::fail(format!("cannot run {}: {error}", iperf.path.display()));
        let _server = Server(server.spawn().map_err(of_process).map_err(cannot)?);
        let mut output = None;
        for _ in 0..TRIES {
            std::thread::sleep(PAUSE);
            let mut client = iperf.command();
            client.args(["--client", &here, "--port", &port, "--json", "--time", &SIDE.as_secs().to_string()]);
            client.args(["--length", &self.message.to_string(), "--congestion", self.control]);
            client.args(["--affinity", &self.ends.sender.to_string()]);
            let found = iperf.run(&mut client)?;
            let is_early = found.failed.is_some() && found.words().contains("Connection refused");
            output = Some(found);
            if !is_early {
                break;
            }
        }
        let output = output.ok_or_else(|| Stop::fail("iperf3 was never run"))?;
        arrived(&output)
    }
}

/// Bytes per second in iperf3's words.
fn arrived(output: &Output) -> Result<f64, Stop> {
    let refused = || Stop::fail(format!("iperf3 reports no stream: {}", output.words()));
    let said: serde_json::Value = serde_json::from_str(&output.printed).map_err(|_| refused())?;
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64().filter(|bits| *bits > 0.0);
    bits.map(|bits| bits / 8.0).filter(|_| output.failed.is_none()).ok_or_else(refused)
}

/// A server that ends after one client; ended and reaped when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn predict(_: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != RIVALS_TCP.id {
        return Err(NoPrediction::because(
            "net.bandwidth.tcp predicts the rate; here only the ratio of two programs counts",
        ));
    }
    Ok(as_fast(SPREAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::script;
    use crate::testing::facts_about;

    /// As iperf3 3.12 prints it, shortened.
    const SAID: &str = r#"{"start":{"version":"iperf 3.12"},"end":{"sum_sent":{"bytes":5368709120,"bits_per_second":42949672960.0},"sum_received":{"bytes":5367660544,"bits_per_second":42910000000.0}}}"#;

    fn stream() -> Stream<'static> {
        let cpu = kelvin_sys::cpu::allowed().unwrap()[0];
        Stream { ends: Ends { sender: cpu, receiver: cpu }, message: 4096, control: "reno" }
    }

    #[test]
    fn what_arrived_is_taken_and_nothing_else() {
        let output = |printed: &str, failed: Option<&str>| Output {
            printed: printed.into(),
            complaint: String::new(),
            failed: failed.map(str::to_owned),
        };
        assert_eq!(arrived(&output(SAID, None)).unwrap(), 42.91e9 / 8.0);
        for bad in
            [output(SAID, Some("exit status: 1")), output(r#"{"error":"unable to connect"}"#, None), output("", None)]
        {
            assert!(matches!(arrived(&bad), Err(Stop::Fail(why)) if why.contains("no stream")), "{bad:?}");
        }
    }

    #[test]
    fn the_client_waits_until_its_server_listens() {
        let directory = tempfile::tempdir().unwrap();
        let [tried, said] = ["tried", "said"].map(|name| directory.path().join(name));
        std::fs::write(&said, SAID).unwrap();
        // Its second client is served.
        let text = format!(
            "case $1 in --version) echo iperf 3.12; exit;; --server) sleep 5; exit;; esac\n\
             if test -e {0}; then cat {1}; else touch {0}; echo '{{\"error\":\"unable to connect: Connection refused\"}}'; exit 1; fi",
            tried.display(),
            said.display()
        );
        let iperf = script(directory.path(), Rival::Iperf3, &text);
        assert_eq!(stream().by(&iperf).unwrap(), 42.91e9 / 8.0);
    }

    #[test]
    fn kelvins_own_side_carries_bytes() {
        let pair = Link::pair(Protocol::Tcp).unwrap();
        assert!(stream().ours(pair).unwrap() > 0.0);
    }

    #[test]
    fn only_the_ratio_is_predicted() {
        facts_about(&[], |facts| {
            assert_eq!(predict(facts, &RIVALS_TCP, &Case::new()).unwrap().value, 1.0);
            assert!(predict(facts, &RIVALS_TCP_KELVIN, &Case::new()).is_err());
            assert!(predict(facts, &RIVALS_TCP_OTHER, &Case::new()).is_err());
        });
    }
}
