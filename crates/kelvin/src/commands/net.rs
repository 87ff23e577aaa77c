//! `kelvin net`: throughput to a host with an agent, or over loopback, by streams of one's own choice.

mod flow;
mod limit;
mod report;
mod text;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_core::units;
use kelvin_sys::random::kernel_random;
use kelvin_sys::stop_signals::{install_handlers, stop_signal};
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::address::{DisplayAddr, resolve};
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::Agent;
use kelvin_transfer::wire::client::AgentClient;
use kelvin_transfer::wire::client::throughput::{ThroughputSample, ThroughputSchedule};
use kelvin_transfer::wire::message::Transport;
use kelvin_transfer::wire::secret::Secret;
use kelvin_transfer::wire::test_socket::TestSocketOptions;
use kelvin_transfer::wire::throughput::{MAX_SECONDS, MAX_STREAMS, ThroughputSpec};

use crate::answer::AnswerOutlet;
use crate::cli::NetArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::peer_agent::read_secret;
use crate::progress::StatusLine;
use crate::socket_options::check_congestion_control;
use flow::Direction;
use report::{DirectedFlow, IntervalReport, MeasuredTest, NetReport, directed_flows};

/// Bits a second of each stream of datagrams, unless another rate is asked for: datagrams do not slow down for others.
const DEFAULT_DATAGRAM_RATE: u64 = 1_000_000;
/// The time that counts, unless another one is asked for.
const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// Bytes of a call of TCP, unless others are asked for.
const DEFAULT_MESSAGE_BYTES: u32 = 128 << 10;
/// Looks at a test, of whose rates the interval of the mean is made: so many, and no further apart or closer than these.
const LOOKS: u32 = 20;
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(1);
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Columns of a label.
const LABEL_WIDTH: usize = 14;

/// `kelvin net`.
pub fn net(args: &NetArgs) -> CmdResult {
    check_options(args)?;
    let outlet = AnswerOutlet::find(&args.answer)?;
    match args.host() {
        Some(host) => {
            let addresses = addresses(host, args)?;
            let secret = read_secret(args.token_file.as_deref())?;
            let client = AgentClient::connect(&addresses, &secret).context(host)?;
            measure(args, client, Some(host), outlet)
        }
        None => with_own_agent(args.ipv6, |client| measure(args, client, None, outlet)),
    }
}

/// What is wrong before anybody is asked.
fn check_options(args: &NetArgs) -> Result<(), CliError> {
    if args.bidir && 2 * args.streams > MAX_STREAMS {
        bail!("--streams {}: with --bidir at most {}, in each direction", args.streams, MAX_STREAMS / 2);
    }
    args.congestion_control.as_deref().map_or(Ok(()), check_congestion_control)
}

/// The addresses of the host, of the protocol that was asked for.
fn addresses(host: &str, args: &NetArgs) -> Result<Vec<SocketAddr>, CliError> {
    let mut addresses = resolve(host).context(host)?;
    addresses.retain(|address| !(args.ipv4 && address.is_ipv6() || args.ipv6 && address.is_ipv4()));
    match addresses.is_empty() {
        true => Err(CliError::new(host, format_args!("it has no IPv{} address", if args.ipv4 { 4 } else { 6 }))),
        false => Ok(addresses),
    }
}

/// Does this with a client of an agent of this process, at the loopback address.
fn with_own_agent(is_ipv6: bool, body: impl FnOnce(AgentClient) -> CmdResult) -> CmdResult {
    let numbers = [kernel_random()?, kernel_random()?, kernel_random()?, kernel_random()?];
    let secret = || Secret::new(&numbers.map(u64::to_le_bytes).concat()).map_err(CliError::msg);
    let (agent_secret, client_secret) = (secret()?, secret()?);
    let address = if is_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let agent = Agent::listen(SocketAddr::new(address, 0), agent_secret, AgentLimits::default(), Box::new(|_, _| ()));
    let agent = agent.context(format_args!("listen at {address}"))?;
    let (address, is_over) = (agent.address()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serve = || agent.serve(|| is_over.load(Ordering::Relaxed));
        ThreadBuilder::named("agent").start_in(scope, serve)?;
        // The agent ends whatever happens here: the scope waits for it.
        let _end = StopOnDrop(&is_over);
        AgentClient::connect(&[address], &client_secret).map_err(CliError::msg).and_then(body)
    })
}

/// Sets a flag when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures, with a line of each interval, and reports.
fn measure(args: &NetArgs, mut client: AgentClient, host: Option<&str>, outlet: AnswerOutlet) -> CmdResult {
    let spec = spec(args, client.segment()?)?;
    let schedule = schedule(args);
    let agent = host.map(|_| DisplayAddr(client.agent_addr).to_string());
    install_handlers()?;
    let lines = Lines { every: args.interval, is_streamed: outlet.is_streamed(), columns: outlet.columns() };
    let mut recorder = IntervalRecorder::new(&spec, &schedule, lines);
    let title = title(&spec, host, agent.as_deref());
    if lines.is_streamed {
        output::print(|out| write_head(&spec, &title, lines, out))?;
    }
    let outcome = client.measure_throughput(&spec, &schedule, &|| stop_signal().is_some(), &mut |before, sample| {
        recorder.record(before, sample)
    });
    let outcome = outcome.context(host.unwrap_or("over loopback"))?;
    if let Some(last) = &outcome.last {
        recorder.record_end(last);
    }
    let IntervalRecorder { intervals, fault, .. } = recorder;
    fault.map_or(Ok(()), Err)?;
    let warm_up_looks = outcome.samples.iter().take_while(|sample| sample.due < schedule.warm_up).count();
    let test = MeasuredTest { spec: &spec, outcome: &outcome, warm_up_looks, host };
    let Some(report) = NetReport::new(&test, agent, intervals, stop_signal().is_some()) else {
        bail!("interrupted before anything was measured");
    };
    let is_sound = report.is_sound();
    outlet.write(&report, |out| {
        if !lines.is_streamed {
            write_head(&spec, &title, lines, out)?;
            for line in report.intervals.iter().flat_map(|interval| text::interval_lines(interval, lines.columns)) {
                writeln!(out, "{line}")?;
            }
        }
        if !report.intervals.is_empty() {
            writeln!(out)?;
        }
        report.lines(host).iter().try_for_each(|(label, text)| match label {
            &"" if text.is_empty() => writeln!(out),
            label => output::write_wrapped(out, output::width(), &format!("{label:LABEL_WIDTH$}"), text),
        })
    })?;
    Ok(is_sound)
}

/// What is asked of the agent.
fn spec(args: &NetArgs, segment: u32) -> Result<ThroughputSpec, CliError> {
    let transport = if args.udp { Transport::Udp } else { Transport::Tcp };
    let default_message = if args.udp { segment } else { DEFAULT_MESSAGE_BYTES };
    let message = args.message.unwrap_or(default_message);
    if args.udp && !datagram_sizes().contains(&message) {
        bail!(
            "--message {message}: a datagram has from {} to {} bytes",
            datagram_sizes().start(),
            datagram_sizes().end()
        );
    }
    let default_rate = args.udp.then_some(DEFAULT_DATAGRAM_RATE);
    let bytes = args.messages.map(|messages| messages.saturating_mul(message.into())).or(args.bytes);
    let counted = args.time.unwrap_or(DEFAULT_TIME) + args.warm_up.unwrap_or_default();
    Ok(ThroughputSpec {
        transport,
        to_agent: if args.reverse { 0 } else { args.streams },
        from_agent: if args.reverse || args.bidir { args.streams } else { 0 },
        message,
        bits_per_second: args.bitrate.or(default_rate).filter(|&bits| bits > 0),
        bytes,
        seconds: if bytes.is_some() { MAX_SECONDS } else { (counted.as_secs() as u32 + 1).min(MAX_SECONDS) },
        no_delay: args.no_delay,
        sockets: TestSocketOptions {
            congestion_control: args.congestion_control.clone(),
            buffers: args.socket_buffers,
            segment: args.segment,
        },
    })
}

fn datagram_sizes() -> std::ops::RangeInclusive<u32> {
    use kelvin_transfer::wire::throughput::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES};
    MIN_DATAGRAM_BYTES..=MAX_DATAGRAM_BYTES
}

/// When it is looked at: often enough for an interval of the mean, and so that each line ends with a look.
fn schedule(args: &NetArgs) -> ThroughputSchedule {
    let has_amount = args.bytes.is_some() || args.messages.is_some();
    let time = (!has_amount).then(|| args.time.unwrap_or(DEFAULT_TIME));
    let look = time.map_or(MIN_LOOK_INTERVAL, |time| (time / LOOKS).clamp(MIN_LOOK_INTERVAL, MAX_LOOK_INTERVAL));
    let looks_per_line = (args.interval.as_secs_f64() / look.as_secs_f64()).ceil().max(1.0);
    let interval = if args.interval.is_zero() { look } else { args.interval.div_f64(looks_per_line) };
    ThroughputSchedule { warm_up: args.warm_up.unwrap_or_default(), time, interval }
}

/// What is measured, in a line.
fn title(spec: &ThroughputSpec, host: Option<&str>, agent: Option<&str>) -> String {
    let place = match (host, agent) {
        (Some(host), Some(agent)) if host == agent => host.to_owned(),
        (Some(host), Some(agent)) => format!("{host} ({agent})"),
        _ => "this host, over loopback".to_owned(),
    };
    let way = match (spec.to_agent, spec.from_agent) {
        (_, 0) => "to",
        (0, _) => "from",
        _ => "to and from",
    };
    let streams = units::plural(spec.to_agent.max(spec.from_agent).into(), "stream");
    let each = if spec.to_agent > 0 && spec.from_agent > 0 { " each way" } else { "" };
    let rate = spec.bits_per_second.map(|bits| format!(", {} a stream", text::rate_text(bits as f64)));
    let message = units::bytes(spec.message.into());
    let unit = if spec.transport == Transport::Udp { "a datagram" } else { "a call" };
    format!(
        "{} {way} {place}: {streams}{each}, {message} {unit}{}{}",
        spec.transport,
        rate.unwrap_or_default(),
        spec.sockets
    )
}

/// How intervals are printed.
#[derive(Clone, Copy, Debug)]
struct Lines {
    /// From one line to the next; zero for none.
    every: Duration,
    /// Whether each is printed once it is measured.
    is_streamed: bool,
    columns: usize,
}

/// Writes what is measured, and the head of the lines of intervals.
fn write_head(spec: &ThroughputSpec, title: &str, lines: Lines, out: &mut dyn Write) -> std::io::Result<()> {
    output::write_wrapped(out, output::width(), "", title)?;
    if lines.every.is_zero() {
        return writeln!(out);
    }
    let has_directions = Direction::all(spec).len() > 1;
    writeln!(out, "\n{}", text::interval_head(spec.transport, has_directions, lines.columns))
}

/// Makes an interval of the looks at a test, and prints its lines.
struct IntervalRecorder<'a> {
    spec: &'a ThroughputSpec,
    schedule: &'a ThroughputSchedule,
    lines: Lines,
    status: StatusLine,
    /// The end of the last interval.
    last: Option<ThroughputSample>,
    intervals: Vec<IntervalReport>,
    /// Why a line could not be printed.
    fault: Option<CliError>,
}

impl<'a> IntervalRecorder<'a> {
    fn new(spec: &'a ThroughputSpec, schedule: &'a ThroughputSchedule, lines: Lines) -> Self {
        let status = StatusLine::new();
        Self { spec, schedule, lines, status, last: None, intervals: Vec::new(), fault: None }
    }

    /// Sees a look at the test, and the one before it.
    fn record(&mut self, before: &ThroughputSample, sample: &ThroughputSample) {
        if self.lines.every.is_zero() {
            return;
        }
        let last = self.last.get_or_insert_with(|| before.clone());
        let ThroughputSchedule { warm_up, time, .. } = *self.schedule;
        let is_end = time.is_some_and(|time| sample.due >= warm_up + time);
        // Parts of an interval do not add up to it exactly.
        let is_whole = sample.due.saturating_sub(last.due) + Duration::from_micros(1) >= self.lines.every;
        if is_end || is_whole || (sample.due == warm_up && !warm_up.is_zero()) {
            let flows = directed_flows(self.spec, |direction| direction.flow(last, sample));
            let start = last.due;
            self.last = Some(sample.clone());
            self.add(start, sample.due, flows);
        }
    }

    /// The rest of a test that ends with its last byte.
    fn record_end(&mut self, last: &ThroughputSample) {
        if self.spec.bytes.is_none() || self.lines.every.is_zero() {
            return;
        }
        let flows = directed_flows(self.spec, |direction| match &self.last {
            Some(before) => direction.flow_until_end(before, last),
            None => direction.whole_flow(last),
        });
        let start = self.last.as_ref().map_or(Duration::ZERO, |before| before.due);
        let length = flows.iter().map(|flow| flow.flow.seconds).fold(0.0, f64::max);
        self.add(start, start + Duration::from_secs_f64(length), flows);
    }

    fn add(&mut self, start: Duration, end: Duration, flows: Vec<DirectedFlow>) {
        let warm_up = end <= self.schedule.warm_up;
        let interval = IntervalReport { start: start.as_secs_f64(), end: end.as_secs_f64(), warm_up, flows };
        let lines = text::interval_lines(&interval, self.lines.columns);
        if self.lines.is_streamed {
            let printed = output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")));
            self.fault = self.fault.take().or(printed.err());
        } else {
            self.status.show(lines.join("; "));
        }
        self.intervals.push(interval);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    const SEGMENT: u32 = 1448;

    fn args(options: &str) -> NetArgs {
        let words = ["kelvin", "net"].into_iter().chain(options.split_whitespace());
        match Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{options}: {error}")).command {
            Command::Net(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn parsed(options: &str) -> (ThroughputSpec, ThroughputSchedule) {
        let args = args(options);
        check_options(&args).unwrap();
        (spec(&args, SEGMENT).unwrap(), schedule(&args))
    }

    fn default_spec() -> ThroughputSpec {
        ThroughputSpec {
            transport: Transport::Tcp,
            to_agent: 1,
            from_agent: 0,
            message: 128 << 10,
            bits_per_second: None,
            bytes: None,
            seconds: 11,
            no_delay: false,
            sockets: TestSocketOptions::default(),
        }
    }

    fn datagrams() -> ThroughputSpec {
        let bits_per_second = Some(1_000_000);
        ThroughputSpec { transport: Transport::Udp, message: SEGMENT, bits_per_second, ..default_spec() }
    }

    /// The options of iperf3(1), which mean here what they mean there.
    #[test]
    fn options_of_iperf3_ask_for_the_same_work() {
        let buffers = |buffers| TestSocketOptions { buffers: Some(buffers), ..TestSocketOptions::default() };
        let (tcp, udp) = (default_spec, datagrams);
        let reno = TestSocketOptions { congestion_control: Some("reno".into()), ..TestSocketOptions::default() };
        let segment = TestSocketOptions { segment: Some(1400), ..TestSocketOptions::default() };
        for (options, expected) in [
            ("far", tcp()),
            ("-c far", tcp()),
            ("-c far -t 30", ThroughputSpec { seconds: 31, ..tcp() }),
            ("-c far -n 1G", ThroughputSpec { bytes: Some(1 << 30), seconds: MAX_SECONDS, ..tcp() }),
            (
                "-c far -k 1000 -l 8K",
                ThroughputSpec { bytes: Some(8_192_000), message: 8192, seconds: MAX_SECONDS, ..tcp() },
            ),
            ("-c far -P 4", ThroughputSpec { to_agent: 4, ..tcp() }),
            ("-c far --parallel 4 -R", ThroughputSpec { to_agent: 0, from_agent: 4, ..tcp() }),
            ("-c far --bidir", ThroughputSpec { from_agent: 1, ..tcp() }),
            ("-c far -b 10M", ThroughputSpec { bits_per_second: Some(10_000_000), ..tcp() }),
            ("-c far -u", udp()),
            ("-c far -u -b 100M", ThroughputSpec { bits_per_second: Some(100_000_000), ..udp() }),
            ("-c far -u --bandwidth 0 --length 1400", ThroughputSpec { bits_per_second: None, message: 1400, ..udp() }),
            ("-c far -w 256K", ThroughputSpec { sockets: buffers(256 << 10), ..tcp() }),
            ("-c far --window 1M", ThroughputSpec { sockets: buffers(1 << 20), ..tcp() }),
            ("-c far -C reno", ThroughputSpec { sockets: reno, ..tcp() }),
            ("-c far -M 1400", ThroughputSpec { sockets: segment, ..tcp() }),
            ("-c far -N", ThroughputSpec { no_delay: true, ..tcp() }),
            ("-c far -O 2 -t 5", ThroughputSpec { seconds: 8, ..tcp() }),
            ("-c far -J -4", tcp()),
            ("-c far -i 0 -6", tcp()),
        ] {
            assert_eq!(parsed(options).0, expected, "{options}");
        }
    }

    #[test]
    fn lines_end_with_looks() {
        let times = |options: &str| {
            let ThroughputSchedule { warm_up, time, interval } = parsed(options).1;
            (warm_up.as_secs_f64(), time.map(|time| time.as_secs_f64()), interval.as_secs_f64())
        };
        assert_eq!(times(""), (0.0, Some(10.0), 0.5));
        assert_eq!(times("-t 60 -O 2"), (2.0, Some(60.0), 1.0));
        assert_eq!(times("-t 60 -i 10"), (0.0, Some(60.0), 1.0));
        assert_eq!(times("-t 1 -i 0.5"), (0.0, Some(1.0), 0.1));
        assert_eq!(times("-t 4 -i 0.3"), (0.0, Some(4.0), 0.15));
        assert_eq!(times("-n 1M -i 0"), (0.0, None, 0.1));
    }

    #[test]
    fn wrong_options_are_refused_with_what_would_be_right() {
        let refused = |options: &str| {
            let args = args(options);
            check_options(&args).and_then(|()| spec(&args, SEGMENT).map(drop)).unwrap_err().to_string()
        };
        assert_eq!(refused("--bidir -P 65"), "--streams 65: with --bidir at most 64, in each direction");
        assert_eq!(refused("-u -l 16"), "--message 16: a datagram has from 17 to 65507 bytes");
        assert!(refused("-C nosuch").contains("this kernel has no such congestion control"));
        for options in
            ["--token-file x", "far -c far", "-R --bidir", "-t 1 -n 1", "-n 1 -k 1", "-n 1 -O 1", "-u -N", "-u -M 1000"]
        {
            let words = ["kelvin", "net"].into_iter().chain(options.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{options}");
        }
    }

    #[test]
    fn title_names_what_is_measured() {
        let title = |options: &str, host| {
            let spec = parsed(options).0;
            title(&spec, host, host.map(|_| "192.0.2.7:27315"))
        };
        assert_eq!(title("", None), "TCP to this host, over loopback: 1 stream, 128 KiB a call");
        assert_eq!(
            title("far --bidir -P 2 -b 1G", Some("far")),
            "TCP to and from far (192.0.2.7:27315): 2 streams each way, 128 KiB a call, 1.000 Gbit/s a stream"
        );
        assert_eq!(
            title("far -u -R -w 1M", Some("192.0.2.7:27315")),
            "UDP from 192.0.2.7:27315: 1 stream, 1448 B a datagram, 1.000 Mbit/s a stream with socket buffers of 1024 KiB"
        );
    }
}
