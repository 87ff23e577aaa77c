//! `kelvin load`: requests to an HTTP server, and how long their answers take.

mod placement;
mod plot;
mod show;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_file::user_file::UserFile;
use kelvin_load::gate::Objective;
use kelvin_load::pattern::Pattern;
use kelvin_load::replay::Replay;
use kelvin_load::request::{Form, header, method};
use kelvin_load::schedule::Think;
use kelvin_load::search::Search;
use kelvin_load::target::Target;
use kelvin_load::tls::Trust;
use kelvin_load::verify::{Known, Verify};
use kelvin_load::{Demand, Peer, Setup, files, tls};
use kelvin_model::load::{Load, Loads, RateSearch};

use crate::cli::{LoadArgs, VerifyArg};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output::{self, read_named, read_named_text};
use placement::Placement;

/// The measured time, unless another one is asked for.
const DURATION: Duration = Duration::from_secs(10);

/// The same for each of several loads.
const DURATION_OF_A_TRY: Duration = Duration::from_secs(5);

/// Longest warm-up that is not asked for.
const LONGEST_WARM_UP: Duration = Duration::from_secs(10);

/// Most connections of an open loop, unless others are asked for.
const CONNECTIONS: u32 = 1000;

/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Measures the load and prints what came of it.
pub fn load(args: &LoadArgs) -> Done {
    check(args)?;
    let plot = args.plot.as_deref().map(UserFile::find).transpose().map_err(Fault::because)?;
    let mut setup = setup(args)?;
    if let Some(log) = &args.replay {
        replay(args, log, &mut setup)?;
    }
    let demands = demands(args, &setup);
    allow_connections(demands.iter().map(Demand::connections).max().unwrap_or(0))?;
    // Until it is reached there is nothing to be told of, and a signal ends the program at once.
    let peer = Peer::reach(&setup).map_err(Fault::because)?;
    let place = Placement::of(args, &peer)?;
    kelvin_sys::interrupt::watch()?;
    if let Some(objective) = args.slo {
        return tell(args, &place, &search(args, &peer, setup, objective)?);
    }
    let loads = in_turn(setup, &peer, demands)?;
    if let Some(file) = plot {
        let figure = plot::figure(&loads);
        let write = |out: &mut dyn Write| out.write_all(kelvin_report::svg::standalone(&figure).as_bytes());
        file.write(write).map_err(Fault::because)?;
    }
    match &loads[..] {
        [load] if args.json => output::print_json(load)?,
        [load] => output::print(|out| show::load(load, &place, out))?,
        _ if args.json => output::print_json(&Loads { loads: loads.clone() })?,
        _ => output::print(|out| show::loads(&loads, &place, out))?,
    }
    Ok(conclude(args, &loads))
}

/// Measures one load after the other, until a signal ends one.
fn in_turn(mut setup: Setup, peer: &Peer, demands: Vec<Demand>) -> Result<Vec<Load>, Fault> {
    let mut loads = Vec::new();
    for demand in demands {
        setup.demand = demand;
        let load = measure(&setup, peer)?;
        let is_over = load.interrupted.is_some();
        loads.push(load);
        if is_over {
            break;
        }
    }
    Ok(loads)
}

/// Searches the highest rate that keeps the objective.
fn search(args: &LoadArgs, peer: &Peer, mut setup: Setup, objective: Objective) -> Result<RateSearch, Fault> {
    let (mut search, mut tries) = (Search::default(), Vec::new());
    let mut is_generator_limit = false;
    while let Some(rate) = search.next_rate() {
        setup.demand = at_rate(args, rate);
        let load = measure(&setup, peer)?;
        // In a step that is shorter than the time between two requests nothing may be due.
        if load.requests + load.failed() == 0 && load.interrupted.is_none() {
            show::nothing_asked(rate, &load);
            tries.push(load);
            break;
        }
        let is_kept = objective.is_kept(&load);
        is_generator_limit = !is_kept && objective.is_of_generator(&load);
        let is_over = is_generator_limit || load.interrupted.is_some();
        show::attempt(rate, is_kept, &load);
        tries.push(load);
        if is_over {
            break;
        }
        search.tell(rate, is_kept);
    }
    let (kept, missed) = (search.kept(), search.missed());
    Ok(RateSearch { objective: objective.to_string(), kept, missed, is_generator_limit, tries })
}

/// Prints what a search found.
fn tell(args: &LoadArgs, place: &Placement, found: &RateSearch) -> Done {
    if args.json {
        output::print_json(found)?;
    } else {
        output::print(|out| show::search(found, place, out))?;
    }
    let is_whole = found.kept.is_some() && found.tries.iter().all(|load| load.interrupted.is_none());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) })
}

fn measure(setup: &Setup, peer: &Peer) -> Result<Load, Fault> {
    let progress = show::Progress::new(setup.duration);
    kelvin_load::load(setup, peer, &mut |series| progress.show(series)).map_err(Fault::because)
}

/// Says which conditions were met.
fn conclude(args: &LoadArgs, loads: &[Load]) -> ExitCode {
    let missed = |load: &Load| -> Vec<String> {
        let at = if loads.len() > 1 { format!(" with {}", show::name(load)) } else { String::new() };
        args.fail_on.iter().filter_map(|gate| Some(format!("{}{at}", gate.missed(load)?))).collect()
    };
    let missed: Vec<String> = loads.iter().flat_map(missed).collect();
    missed.iter().for_each(|why| output::remark(format_args!("kelvin: --fail-on {why}")));
    let is_good = missed.is_empty() && loads.iter().all(|load| load.requests > 0 && load.interrupted.is_none());
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) }
}

/// What the arguments ask for.
fn setup(args: &LoadArgs) -> Result<Setup, Fault> {
    let (target, paths) = target(args)?;
    let (verify, known) = right_bodies(args, &paths)?;
    let of_certificates = [("--ca", args.ca.is_some()), ("--insecure", args.insecure)];
    if let Some((option, _)) = of_certificates.iter().find(|(_, is_given)| *is_given && !target.secure) {
        return Err(Fault::new(option, "an http server shows no certificate: leave it out, or give an https URL"));
    }
    let trust = match &args.ca {
        Some(file) => Trust::File(file),
        None if args.insecure => Trust::Anybody,
        None => Trust::System,
    };
    let tls = target.secure.then(|| tls::config(trust)).transpose();
    let is_one = args.slo.is_none() && args.users.len() + args.rate.len() <= 1;
    let usual = if is_one { DURATION } else { DURATION_OF_A_TRY };
    let duration = args.duration.unwrap_or(usual);
    let warm_up = args.warm_up.unwrap_or_else(|| (duration / 10).min(LONGEST_WARM_UP));
    Ok(Setup {
        tls: tls.map_err(|why| Fault::new("--ca", why))?,
        target,
        paths,
        pattern: args.pattern,
        form: form(args)?,
        demand: at_rate(args, 1.0),
        warm_up: if args.no_warm_up { Duration::ZERO } else { warm_up },
        duration,
        timeout: args.timeout,
        seed: args.seed,
        verify,
        known,
        // With one CPU the server would have none.
        spin: kelvin_sys::cpu::allowed()?.len() > 1,
        goes_on: None,
    })
}

/// What of bodies is compared, and the right ones that are known before.
fn right_bodies(args: &LoadArgs, paths: &[String]) -> Result<(Verify, Vec<Option<Known>>), Fault> {
    let verify = match args.verify {
        None => Verify::Nothing,
        Some(VerifyArg::Length) => Verify::Length,
        Some(VerifyArg::Content) => Verify::Content,
    };
    let known = match &args.root {
        None => vec![None; paths.len()],
        Some(root) => files::known(root, paths, verify).map_err(|why| Fault::new("--root", why))?,
    };
    Ok((verify, known))
}

/// Has the setup ask for what a log has.
fn replay(args: &LoadArgs, log: &Path, setup: &mut Setup) -> Result<(), Fault> {
    let wrong = |why: &dyn std::fmt::Display| Fault::new(format!("--replay {}", log.display()), why);
    let text = read_named(log).map_err(|error| wrong(&error))?;
    let replay = Replay::read(&text, args.speed).map_err(|why| wrong(&why))?;
    if replay.left_out.count() > 0 {
        output::remark(format_args!("kelvin: lines of {} that are left out: {}", log.display(), replay.left_out));
    }
    setup.duration = args.duration.unwrap_or(replay.duration);
    setup.warm_up = Duration::ZERO;
    setup.pattern = Pattern::Sequence;
    setup.known = vec![None; replay.paths.len()];
    setup.paths = replay.paths;
    setup.demand = Demand::Log { times: replay.times.into(), connections: connections(args) };
    Ok(())
}

/// The server and the paths of its files.
fn target(args: &LoadArgs) -> Result<(Target, Vec<String>), Fault> {
    let Some(list) = &args.files else {
        let target = args.url.clone().ok_or_else(|| Fault::because("give a URL, or --files and a list of them"))?;
        let path = target.path.clone();
        return Ok((target, vec![path]));
    };
    let wrong = |why: &dyn std::fmt::Display| Fault::new(format!("--files {}", list.display()), why);
    let text = read_named_text(list).map_err(|error| wrong(&error))?;
    files::list(&text, args.url.clone()).map_err(|why| wrong(&why))
}

/// The loads that are asked for, one after the other: the users first.
fn demands(args: &LoadArgs, setup: &Setup) -> Vec<Demand> {
    if args.slo.is_some() || args.replay.is_some() {
        return vec![setup.demand.clone()];
    }
    let think = Think { mean: args.think.unwrap_or_default().as_nanos() as f64, spread: args.spread.into() };
    let users: &[u32] = if args.users.is_empty() && args.rate.is_empty() { &[1] } else { &args.users };
    let users = users.iter().map(|&users| Demand::Users { users, think });
    users.chain(args.rate.iter().map(|&rate| at_rate(args, rate))).collect()
}

fn at_rate(args: &LoadArgs, rate: f64) -> Demand {
    Demand::Rate { rate, spread: args.spread.into(), connections: connections(args) }
}

/// Most connections of an open loop.
fn connections(args: &LoadArgs) -> u32 {
    args.connections.unwrap_or(CONNECTIONS)
}

/// Refuses what belongs to the other kind of loop only.
fn check(args: &LoadArgs) -> Result<(), Fault> {
    if args.think.is_some() && args.users.is_empty() && !args.rate.is_empty() {
        return Err(Fault::new("--think", "requests at a --rate do not wait for thought: give --users"));
    }
    let has_rate = !args.rate.is_empty() || args.slo.is_some() || args.replay.is_some();
    if args.connections.is_some() && !has_rate {
        return Err(Fault::new("--connections", "users have one connection each: give --rate"));
    }
    Ok(())
}

/// What is sent with every request.
fn form(args: &LoadArgs) -> Result<Form, Fault> {
    let headers: Result<Vec<_>, Fault> =
        args.headers.iter().map(|line| header(line).map_err(|why| Fault::new(format!("-H '{line}'"), why))).collect();
    let body = match args.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
        None => Vec::new(),
        Some((_, Some(file))) => {
            read_named(Path::new(file)).map_err(|error| Fault::new(format!("--body @{file}"), error))?
        }
        Some((body, None)) => body.as_bytes().to_vec(),
    };
    let method = method(&args.method).map_err(|why| Fault::new(format!("--method {}", args.method), why))?;
    Ok(Form { method, headers: headers?, body })
}

/// Has the system allow so many connections.
fn allow_connections(connections: u32) -> Result<(), Fault> {
    let allowed = kelvin_sys::process::raise_open_files()?;
    let wanted = u64::from(connections) + OTHER_DESCRIPTORS;
    if wanted > allowed {
        let most = allowed.saturating_sub(OTHER_DESCRIPTORS);
        let needs =
            if connections == 1 { "1 connection needs".into() } else { format!("{connections} connections need") };
        let fewer =
            if most > 0 { format!("ask for at most {most} by --users or --connections, or ") } else { String::new() };
        return Err(Fault::because(format!(
            "{needs} {wanted} descriptors and {allowed} are allowed: {fewer}raise the limit by ulimit -n {wanted}"
        )));
    }
    Ok(())
}
