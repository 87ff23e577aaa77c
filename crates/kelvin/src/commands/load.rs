//! `kelvin load`: requests to an HTTP server, and how long their answers take.

mod advice;
mod failures;
mod groups;
mod http2;
mod merge;
mod merge_text;
mod origin;
mod placement;
mod plot;
mod sentence;
mod table;
mod text;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use kelvin_core::load::{LoadFigures, LoadResult, SecondResult};
use kelvin_core::units;
use kelvin_file::output_file::OutputFile;
use kelvin_http::load::access_pattern::AccessPattern;
use kelvin_http::load::document::{GeneratorOrigin, LoadDocument, LoadSequence, RateSearch};
use kelvin_http::load::replay::Replay;
use kelvin_http::load::request::{RequestTemplate, parse_header, parse_method};
use kelvin_http::load::request_mix::parse_request_mix;
use kelvin_http::load::schedule::ThinkTime;
use kelvin_http::load::server_url::ServerUrl;
use kelvin_http::load::slo::{FailureThreshold, LatencyObjective, RateBisection};
use kelvin_http::load::stages::{StageList, total_duration};
use kelvin_http::load::start_time::StartTime;
use kelvin_http::load::trust::Trust;
use kelvin_http::load::{Demand, GeneratorThreads, LoadSetup, MeasuredLoad, ServerEndpoint, tls, url_list};

use crate::answer::AnswerOutlet;
use crate::cli::{LoadArgs, LoadCommand};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output::{read_named, read_named_text};
use crate::progress::StatusLine;
use placement::GeneratorPlacement;

/// The measured time, unless another one is asked for.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Like `DEFAULT_DURATION`, for each of several loads.
const DEFAULT_STEP_DURATION: Duration = Duration::from_secs(5);

/// Longest warm-up that is not asked for.
const MAX_DEFAULT_WARM_UP: Duration = Duration::from_secs(10);

/// Most connections of an open loop on one host, unless others are asked for.
const DEFAULT_MAX_CONNECTIONS: u32 = 1000;

/// Most requests in flight of an open loop by HTTP/2.
const MAX_IN_FLIGHT: u64 = 1_000_000;

/// Descriptors besides those of connections and threads.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Descriptors of a thread: an epoll, a timer, and a file of the kernel that reports how long it waited for a CPU.
const DESCRIPTORS_PER_THREAD: u64 = 3;

/// Time from the planned end of a load to the start of the next one, where these were given: answers of an open loop are waited for
/// up to 2 s, and the next load takes time to prepare.
const START_SPACING: Duration = Duration::from_secs(3);

/// Does what is asked for.
pub fn load(args: &LoadArgs) -> CmdResult {
    match &args.command {
        None => measure_loads(args),
        Some(LoadCommand::Merge(args)) => merge::merge(args),
    }
}

/// Measures the load and prints what came of it.
fn measure_loads(args: &LoadArgs) -> CmdResult {
    check_loop_options(args)?;
    let outlet = AnswerOutlet::find(&args.answer)?;
    let plot = args.plot.as_deref().map(OutputFile::find).transpose()?;
    let mut setup = setup(args)?;
    if let Some(log) = &args.replay {
        replay(args, log, &mut setup)?;
    }
    if let Some(file) = &args.mix {
        mix(file, &mut setup)?;
    }
    set_stages(args, &mut setup);
    let demands = demands(args, &setup);
    check_requests(args, &demands)?;
    let connections: Vec<u32> = demands.iter().map(|demand| setup.share.count_of(demand.max_connections())).collect();
    check_thread_count(args, &demands, &connections)?;
    check_in_flight(args, &demands)?;
    let most_connections = demands.iter().map(|demand| setup.max_connections(demand)).max().unwrap_or(0);
    raise_descriptor_limit(most_connections, args.thread_count())?;
    // Until it is reached there is nothing to report, and a signal ends the program at once.
    let peer = ServerEndpoint::connect_first(&setup)?;
    let placement = GeneratorPlacement::choose(args, &peer)?;
    setup.threads = placement.threads(args.thread_count());
    kelvin_sys::stop_signals::install_handlers()?;
    if let Some(objective) = args.slo {
        let origin = origin::read(args)?;
        let loads = search_rate(args, &peer, setup, objective)?;
        let document = LoadDocument { origin, loads };
        let search = &document.loads;
        outlet.write(&document, |out| text::write_search(search, &placement, out))?;
        let is_complete =
            search.highest_passing.is_some() && search.tries.iter().all(|load| load.result.interrupted.is_none());
        return Ok(is_complete);
    }
    let origin = origin::read(args)?;
    let loads = measure_demands(args, setup, &peer, demands)?;
    let results: Vec<LoadResult> = loads.iter().map(|load| load.result.clone()).collect();
    let figures: Vec<LoadFigures<'_>> = results.iter().map(LoadResult::figures).collect();
    if let Some(file) = plot {
        write_plot(file, &figures)?;
    }
    let text = |out: &mut dyn Write| match &results[..] {
        [load] => text::write_load(load, &placement, out),
        _ => text::write_loads(&results, &placement, out),
    };
    write_document(outlet, origin, loads, text)?;
    let is_complete = results.iter().all(|load| load.requests > 0 && load.interrupted.is_none());
    Ok(check_conditions(&args.fail_on, &figures) && is_complete)
}

/// Measures one load after the other, until a signal ends one.
fn measure_demands(
    args: &LoadArgs,
    mut setup: LoadSetup,
    peer: &ServerEndpoint,
    demands: Vec<Demand>,
) -> Result<Vec<MeasuredLoad>, CliError> {
    let mut loads: Vec<MeasuredLoad> = Vec::new();
    let mut start = args.start_at.map(|start| future_start(start, Timestamp::now())).transpose()?;
    for demand in demands {
        if loads.last().is_some_and(|load| load.result.interrupted.is_some()) {
            break;
        }
        setup.demand = demand;
        if let Some(requests) = args.requests {
            setup.limit_requests(requests, args.duration).context(format_args!("--requests {requests}"))?;
        }
        if let Some(start) = &mut start {
            setup.start = StartTime::At(*start);
            *start += (setup.warm_up + setup.duration + START_SPACING).as_nanos() as u64;
        }
        loads.push(measure(&setup, peer)?);
    }
    Ok(loads)
}

/// The nanoseconds since 1970 of a start that has not passed.
fn future_start(start: Timestamp, now: Timestamp) -> Result<u64, CliError> {
    if start <= now {
        let seconds = units::seconds(now.duration_since(start).as_secs_f64());
        bail!("--start-at {start}: that was {seconds} ago by this host's clock: give a time that is still to come");
    }
    u64::try_from(start.as_nanosecond()).context("--start-at")
}

/// Writes loads: in JSON a single one without a list.
fn write_document(
    outlet: AnswerOutlet,
    origin: GeneratorOrigin,
    mut loads: Vec<MeasuredLoad>,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    match (loads.pop(), loads.is_empty()) {
        (Some(load), true) => outlet.write(&LoadDocument { origin, loads: load }, text),
        (last, _) => {
            loads.extend(last);
            outlet.write(&LoadDocument { origin, loads: LoadSequence { loads } }, text)
        }
    }
}

/// Writes the throughput against the response times of loads into a file.
fn write_plot(file: OutputFile, loads: &[LoadFigures<'_>]) -> Result<(), CliError> {
    let figure = plot::throughput_figure(loads);
    Ok(file.write(|out: &mut dyn Write| out.write_all(kelvin_report::svg::standalone(&figure).as_bytes()))?)
}

/// Searches the highest rate that keeps the objective.
fn search_rate(
    args: &LoadArgs,
    peer: &ServerEndpoint,
    mut setup: LoadSetup,
    objective: LatencyObjective,
) -> Result<RateSearch, CliError> {
    let (mut search, mut tries) = (RateBisection::default(), Vec::new());
    let mut is_generator_limit = false;
    while let Some(rate) = search.next_rate() {
        setup.demand = rate_demand(args, rate);
        let load = measure(&setup, peer)?;
        // In a step that is shorter than the time between two requests nothing may be due.
        let result = &load.result;
        if result.requests + result.failed_requests() == 0 && result.interrupted.is_none() {
            text::report_no_request_due(rate, result);
            tries.push(load);
            break;
        }
        let is_met = objective.is_met(result);
        is_generator_limit = !is_met && objective.may_be_generator_limited(result);
        let is_over = is_generator_limit || result.interrupted.is_some();
        text::report_attempt(rate, is_met, result);
        tries.push(load);
        if is_over {
            break;
        }
        search.record(rate, is_met);
    }
    Ok(RateSearch {
        objective: objective.to_string(),
        highest_passing: search.highest_met,
        lowest_failing: search.lowest_missed,
        is_generator_limit,
        tries,
    })
}

fn measure(setup: &LoadSetup, peer: &ServerEndpoint) -> Result<MeasuredLoad, CliError> {
    let line = StatusLine::new();
    if let StartTime::At(time) = setup.start {
        let start = Timestamp::from_nanosecond(i128::from(time)).context("--start-at")?;
        line.show(format_args!("begins at {start:.0}"));
    }
    let mut show = |series: &[SecondResult]| line.show_at_intervals(|_| text::progress_text(setup, series));
    Ok(kelvin_http::load::run_load(setup, peer, &mut show)?)
}

/// Reports which conditions were missed; returns whether none was.
fn check_conditions(conditions: &[FailureThreshold], loads: &[LoadFigures<'_>]) -> bool {
    let violations_of = |load: &LoadFigures<'_>| -> Vec<String> {
        let load_name =
            if loads.len() > 1 { format!(" with {}", sentence::load_name(load.offered)) } else { String::new() };
        conditions.iter().filter_map(|threshold| Some(format!("{}{load_name}", threshold.violation(load)?))).collect()
    };
    let violations: Vec<String> = loads.iter().flat_map(violations_of).collect();
    violations.iter().for_each(|violation| notice!("--fail-on {violation}"));
    violations.is_empty()
}

/// What the arguments ask for.
fn setup(args: &LoadArgs) -> Result<LoadSetup, CliError> {
    let (target, paths) = target(args)?;
    let verify = args.verify.unwrap_or_default();
    let expected_bodies = match &args.root {
        None => vec![None; paths.len()],
        Some(root) => url_list::expected_bodies(root, &paths, verify).context("--root")?,
    };
    let tls_options = [("--ca", args.ca.is_some()), ("--insecure", args.insecure)];
    if let Some((option, _)) = tls_options.iter().find(|(_, is_given)| *is_given && !target.secure) {
        bail!(
            "{option}: an http server shows no certificate: leave it out (connections stay open in any case), or give an https URL"
        );
    }
    let trust = match &args.ca {
        Some(file) => Trust::File(file),
        None if args.insecure => Trust::Anybody,
        None => Trust::System,
    };
    let tls = target.secure.then(|| tls::client_config(trust)).transpose();
    let is_single_load = args.slo.is_none() && args.users().len() + args.rate.len() <= 1;
    let default_duration = if is_single_load { DEFAULT_DURATION } else { DEFAULT_STEP_DURATION };
    let duration = args.duration.unwrap_or(default_duration);
    let warm_up = args.warm_up.unwrap_or_else(|| (duration / 10).min(MAX_DEFAULT_WARM_UP));
    Ok(LoadSetup {
        tls: tls.context("--ca")?.map(|tls| if args.http2 { tls.for_http2() } else { tls }),
        http2_streams: args.http2_streams(),
        target,
        unix_socket: args.unix_socket.clone(),
        paths,
        pattern: args.pattern,
        template: request_form(args)?,
        templates: Vec::new(),
        kinds: Vec::new(),
        demand: rate_demand(args, 1.0),
        share: args.share.unwrap_or_default(),
        start: StartTime::Now,
        warm_up: if args.no_warm_up || args.requests.is_some() { Duration::ZERO } else { warm_up },
        duration,
        requests: None,
        timeout: args.timeout,
        seed: args.seed,
        verify,
        expected_bodies,
        threads: GeneratorThreads::Unpinned(args.thread_count()),
        // If each thread took a CPU, the server would have none.
        spin: kelvin_sys::cpu::affinity()?.len() > args.thread_count() as usize,
        extension: None,
    })
}

/// Has the setup ask for what a log has.
fn replay(args: &LoadArgs, log: &Path, setup: &mut LoadSetup) -> Result<(), CliError> {
    let option = format!("--replay {}", log.display());
    let replay = Replay::read(&read_named(log).context(&option)?, args.speed, &setup.template).context(&option)?;
    if replay.skipped.total() > 0 {
        notice!("{} of {} that are left out: {}", replay.unit, log.display(), replay.skipped);
    }
    setup.duration = args.duration.unwrap_or(replay.duration);
    setup.warm_up = Duration::ZERO;
    setup.pattern = AccessPattern::Sequence;
    setup.expected_bodies = vec![None; replay.paths.len()];
    setup.paths = replay.paths;
    setup.templates = replay.templates;
    setup.demand = Demand::Log { times: replay.times.into(), connections: max_connections(args) };
    Ok(())
}

/// Has the setup ask for the kinds of requests of a file.
fn mix(file: &Path, setup: &mut LoadSetup) -> Result<(), CliError> {
    let option = format!("--mix {}", file.display());
    let text = read_named_text(file).context(&option)?;
    // Files of bodies are named from the directory of this one.
    let read_body = |body: &Path| read_named(&file.parent().unwrap_or(Path::new("")).join(body));
    let kinds = parse_request_mix(&text, &setup.template, &read_body).context(option)?;
    setup.mix(kinds);
    Ok(())
}

/// Has the setup ask for stages, without a warm-up.
fn set_stages(args: &LoadArgs, setup: &mut LoadSetup) {
    if let Some(StageList(stages)) = &args.user_stages {
        setup.duration = total_duration(stages);
        setup.demand = Demand::UserStages { stages: stages.as_slice().into(), think: think_time(args) };
    } else if let Some(StageList(stages)) = &args.stages {
        setup.duration = total_duration(stages);
        let (stages, arrivals, connections) = (stages.as_slice().into(), args.arrivals, max_connections(args));
        setup.demand = Demand::RateStages { stages, arrivals, connections };
    } else {
        return;
    }
    setup.warm_up = Duration::ZERO;
}

/// The server and the paths of its files.
fn target(args: &LoadArgs) -> Result<(ServerUrl, Vec<String>), CliError> {
    let Some(list) = &args.files else {
        let target = args.url.clone().ok_or_else(|| CliError::msg("give a URL, or --files and a list of them"))?;
        let path = target.path.clone();
        return Ok((target, vec![path]));
    };
    let option = format!("--files {}", list.display());
    url_list::parse_url_list(&read_named_text(list).context(&option)?, args.url.clone()).context(option)
}

/// The loads that are asked for, one after the other: the users first.
fn demands(args: &LoadArgs, setup: &LoadSetup) -> Vec<Demand> {
    if args.slo.is_some() || args.replay.is_some() || args.stages.is_some() || args.user_stages.is_some() {
        return vec![setup.demand.clone()];
    }
    let think = think_time(args);
    let users = if args.users().is_empty() && args.rate.is_empty() { vec![1] } else { args.users() };
    let users = users.into_iter().map(|users| Demand::Users { users, think });
    users.chain(args.rate.iter().map(|&rate| rate_demand(args, rate))).collect()
}

fn think_time(args: &LoadArgs) -> ThinkTime {
    ThinkTime { mean: args.think.unwrap_or_default().as_nanos() as f64, distribution: args.arrivals }
}

fn rate_demand(args: &LoadArgs, rate: f64) -> Demand {
    Demand::Rate { rate, arrivals: args.arrivals, connections: max_connections(args) }
}

/// Most connections of an open loop, of all hosts together.
fn max_connections(args: &LoadArgs) -> u32 {
    args.connections().unwrap_or_else(|| DEFAULT_MAX_CONNECTIONS * args.share.unwrap_or_default().parts())
}

/// Refuses what belongs to the other kind of loop only.
fn check_loop_options(args: &LoadArgs) -> Result<(), CliError> {
    if !args.tags.is_empty() && !args.answer.is_json() {
        bail!("--tag: only JSON has tags: give --json or -o FILE.json too");
    }
    let is_rate_only = args.users().is_empty() && !args.rate.is_empty() || args.stages.is_some();
    if args.think.is_some() && is_rate_only {
        bail!("--think: requests at a --rate have no think time: give --users");
    }
    if args.connections().is_some() && !args.is_open_loop() {
        bail!("--connections: users have one connection each: give --rate");
    }
    Ok(())
}

/// Refuses a number of requests for loads whose starts are planned after the ends of others: that of users is not known before.
fn check_requests(args: &LoadArgs, demands: &[Demand]) -> Result<(), CliError> {
    let has_planned_end = demands.iter().all(Demand::is_open_loop);
    if args.requests.is_some() && args.start_at.is_some() && demands.len() > 1 && !has_planned_end {
        bail!(
            "--requests: with --start-at, when several loads of users begin is not known: give --duration, or one load"
        );
    }
    Ok(())
}

/// Refuses threads that would have no connection of those that loads have on this host.
fn check_thread_count(args: &LoadArgs, demands: &[Demand], connections: &[u32]) -> Result<(), CliError> {
    let (threads, hosts) = (args.thread_count(), args.share.unwrap_or_default().parts());
    let too_small = demands.iter().zip(connections).filter(|(_, connections)| **connections < threads);
    let Some((demand, connections)) = too_small.min_by_key(|(_, connections)| **connections) else { return Ok(()) };
    let (option, item) = match demand {
        Demand::Users { .. } => ("--users", "user"),
        Demand::UserStages { .. } => ("--user-stages", "user"),
        _ => ("--connections", "connection"),
    };
    match args.share {
        Some(share) => bail!(
            "--share {share}: each thread of each host needs a {item}, and this one has {connections}: give at least {option} {}",
            threads.saturating_mul(hosts)
        ),
        None if item == "user" => bail!(
            "{}: each thread needs a user, and a load has {connections}: give at least {option} {threads}, or fewer threads",
            args.thread_option()
        ),
        None => bail!(
            "{}: each thread needs a connection, and there are {connections}: give at least --connections {threads}, or fewer threads",
            args.thread_option()
        ),
    }
}

/// Refuses more requests in flight than have room in memory: each has a slot from the beginning.
fn check_in_flight(args: &LoadArgs, demands: &[Demand]) -> Result<(), CliError> {
    let connections = demands.iter().filter(|demand| demand.is_open_loop()).map(Demand::max_connections).max();
    let Some((connections, streams)) = connections.zip(args.http2_streams()) else { return Ok(()) };
    if u64::from(connections) * u64::from(streams) > MAX_IN_FLIGHT {
        bail!(
            "--streams {streams}: with --connections {connections} that is more than {MAX_IN_FLIGHT} requests in flight: give fewer of either"
        );
    }
    Ok(())
}

/// What is sent with every request.
fn request_form(args: &LoadArgs) -> Result<RequestTemplate, CliError> {
    let header = |line: &String| parse_header(line).context(format_args!("-H '{line}'"));
    let headers = args.headers.iter().map(header).collect::<Result<Vec<_>, CliError>>()?;
    let body = match (&args.body_file, args.body.as_deref().map(|body| (body, body.strip_prefix('@')))) {
        (Some(file), _) => read_named(file).context(format_args!("--body-file {}", file.display()))?,
        (None, None) => Vec::new(),
        (None, Some((_, Some(file)))) => read_named(Path::new(file)).context(format_args!("--body @{file}"))?,
        (None, Some((body, None))) => body.as_bytes().to_vec(),
    };
    let method = parse_method(&args.method).context(format_args!("--method {}", args.method))?;
    Ok(RequestTemplate { method, headers, body, closes_connections: args.no_keepalive })
}

/// Has the system allow connections of threads.
fn raise_descriptor_limit(connections: u32, threads: u32) -> Result<(), CliError> {
    let allowed = kelvin_sys::process::raise_open_file_limit()?;
    let reserved = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_THREAD * u64::from(threads);
    let needed = u64::from(connections) + reserved;
    if needed > allowed {
        let max = allowed.saturating_sub(reserved);
        let subject =
            if connections == 1 { "1 connection needs".into() } else { format!("{connections} connections need") };
        let advice =
            if max > 0 { format!("ask for at most {max} by --users or --connections, or ") } else { String::new() };
        bail!(
            "{subject} {needed} descriptors and {allowed} are allowed: {advice}raise the limit by ulimit -n {needed}"
        );
    }
    Ok(())
}
