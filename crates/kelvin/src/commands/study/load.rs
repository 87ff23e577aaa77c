//! `kelvin study load`: a file server, visited by numbers of users.

mod peer;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{NetworkSetup, RequestPattern};
use kelvin_core::units::{bytes, decimal_bytes, seconds};
use kelvin_core::{Case, Name, Topology};
use kelvin_harness::{Placement, Plan, PlanUnit};
use kelvin_http::sweep::{
    Error, ExistingServer, FileSetSpec, LoadStudy, OwnServer, StudySetup, StudyTarget, SweepLoad, disk_rate as rate_of,
};

use crate::class_members::ComparedMachines;
use crate::cli::{Budget, StudyArgs, StudyLoadArgs};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::commands::run::{RunOutput, TextOutput};
use crate::output::{self, read_named_text};
use crate::placement::LocalMachine;
use crate::run_plan::RunPlan;
use crate::run_schedule::{MAX_QUICK_TIME, RunDefaults, RunSchedule};
use peer::PeerServer;

/// Files of a quick study: as many as show a random choice, and are made in a second.
const QUICK_FILES: u64 = 128;
/// Files of the published study, and bytes of each.
const PUBLISHED_FILES: u64 = 10_000;
const PUBLISHED_FILE_BYTES: u64 = 2_000_000;
/// Share of the free memory that files in the page cache may take.
const FREE_MEMORY_DIVISOR: u64 = 4;
/// The files of a server's disk are at least this many times what its page cache may hold, and this many where they may be written: what
/// is in the cache by chance is not asked of the disk.
const MIN_CACHE_MULTIPLE: u64 = 2;
const MAX_CACHE_MULTIPLE: u64 = 8;

/// Makes the study.
pub fn load(args: &StudyArgs, defaults: &RunDefaults) -> CmdResult {
    // Where it cannot be raised, users without a descriptor show as errors.
    let _ = kelvin_sys::process::raise_open_file_limit();
    let schedule =
        RunSchedule::unlimited(Plan::default(), defaults.mode, args.options.rounds.unwrap_or(defaults.rounds));
    let mut plan = RunPlan::new(LocalMachine::read(args.options.cpu)?, schedule, &args.options)?;
    let output = RunOutput::open(&mut plan, &args.to, ComparedMachines::default(), TextOutput::Screen)?;
    let peer = peer::start(&args.load, &plan)?;
    let setup = setup(args, defaults, (&plan, peer.as_ref()))?;
    let mut study = LoadStudy::prepare(&setup, &|| report_files(args, &setup.target)).map_err(to_cli_error)?;
    study.expectations().iter().for_each(|line| notice!("{line}"));
    plan.schedule.cases = plan_of_study(&study)?;
    let time = study.steps_time().as_secs_f64();
    plan.settings.budget_seconds = args.options.budget.fixed_time().map_or(time, |time| time.as_secs_f64());
    let (visits, duration_text) = (study.step_count(), seconds(time.round()));
    let preparation = seconds(study.preparation_time.as_secs_f64().round());
    notice!(
        "{visits} visits in about {duration_text}, after {preparation} of preparation; {}",
        plan.destination_text(&args.to.report_paths())
    );
    let limit = seconds(MAX_QUICK_TIME.as_secs_f64());
    output::eprint_names(format_args!("kelvin: --quick takes at most {limit}, and leaves out:"), &study.omissions());
    output.show(plan.measure_by(move |outline, sink| {
        study.run(outline, sink);
        drop(peer);
    })?)
}

/// Reads the files of a directory past the page cache, and prints how fast.
pub fn disk_rate(directory: &Path, milliseconds: u64) -> Result<(), CliError> {
    // Whoever started it has put it where it belongs once its input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    output::print_json(&rate_of(directory, Duration::from_millis(milliseconds))?)
}

fn to_cli_error(error: Error) -> CliError {
    match error {
        Error::Group(..) => CliError::new("--server-group", error),
        Error::MemoryGroup(_) => CliError::new("--server-memory", error),
        Error::Namespaces(_) => CliError::new("--network namespaces", error),
        Error::TooLong { .. } => CliError::new("--quick", error),
        error => CliError::msg(error),
    }
}

/// Every case with the probe that documents it.
fn plan_of_study(study: &LoadStudy) -> Result<Plan, CliError> {
    let probes = kelvin_probes::all();
    let unit = |(id, case): (Name, Case)| {
        let probe = probes.iter().copied().find(|probe| *id == *probe.id);
        let probe = probe.ok_or_else(|| CliError::msg(format!("there is no probe {id}")))?;
        Ok(PlanUnit::new(probe, case))
    };
    let units: Result<Vec<PlanUnit>, CliError> = study.cases().into_iter().map(unit).collect();
    Ok(Plan { units: units?, omissions: Vec::new() })
}

/// What the arguments ask for.
fn setup(
    args: &StudyArgs,
    defaults: &RunDefaults,
    (plan, peer): (&RunPlan, Option<&PeerServer>),
) -> Result<StudySetup, CliError> {
    let load_args = &args.load;
    let is_default = args.options.budget == Budget::Default;
    let running = match (&load_args.url, peer) {
        (Some(_), _) => Some(running_server(load_args)?),
        (None, Some(peer)) => Some(peer.server.clone()),
        (None, None) => None,
    };
    let is_server_here = running.as_ref().is_none_or(ExistingServer::is_on_this_host);
    let cpus = client_cpus(&plan.machine.topology, &plan.setup.placement, is_server_here);
    let target = match running {
        Some(server) => StudyTarget::Running(server),
        None => StudyTarget::Own(own_server(args, plan, &cpus)?),
    };
    let users: BTreeSet<u32> = load_args.users.iter().copied().collect();
    Ok(StudySetup {
        target,
        loads: loads(load_args),
        users: (!users.is_empty()).then(|| users.into_iter().map(u64::from).collect()),
        visits: plan.settings.rounds,
        budget: Duration::from_secs_f64(args.options.budget.seconds(defaults.seconds)),
        max_duration: (args.quick && is_default).then_some(MAX_QUICK_TIME),
        budget_is_total: args.quick || !is_default,
        duration: load_args.step,
        cpus,
        seed: args.options.seed.unwrap_or(1),
    })
}

/// The CPUs of the load generator, the measured one first: half of them where the server has the others, else all but one, which is left to
/// the interrupts of the network and to the study itself.
fn client_cpus(topology: &Topology, placement: &Placement, is_server_here: bool) -> Vec<u32> {
    let Placement { cpu, allowed, .. } = placement;
    let max = if is_server_here { allowed.len() / 2 } else { allowed.len() - 1 };
    topology.near_cpus(*cpu, allowed, max)
}

/// Every pattern with every think time.
fn loads(args: &StudyLoadArgs) -> Vec<SweepLoad> {
    let patterns = if args.pattern.is_empty() { &[RequestPattern::Random][..] } else { &args.pattern };
    let thinks = if args.think.is_empty() { &[Duration::ZERO][..] } else { &args.think };
    patterns.iter().flat_map(|&pattern| thinks.iter().map(move |&think| SweepLoad { pattern, think })).collect()
}

/// A server of the study's own, on the CPUs that the client does not have. Without any it has those of the client.
fn own_server(args: &StudyArgs, plan: &RunPlan, client_cpus: &[u32]) -> Result<OwnServer, CliError> {
    let StudyLoadArgs { server_memory, network, link, server_group, server_options, .. } = &args.load;
    let network = network.unwrap_or(NetworkSetup::Loopback);
    if link.is_some() && network != NetworkSetup::Namespaces {
        bail!("--link: a link that can be limited is one between namespaces: add --network namespaces");
    }
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let (caches, directory) = (args.load.caches(), Path::new(&plan.setup.scratch).to_owned());
    let file_set = choose_file_set(args, &caches, plan)?;
    let files = file_set.fit(&directory, caches.len()).map_err(to_cli_error)?;
    let allowed = &plan.setup.placement.allowed;
    let other_cpus: Vec<u32> = allowed.iter().copied().filter(|cpu| !client_cpus.contains(cpu)).collect();
    let cpus = if other_cpus.is_empty() { allowed.clone() } else { other_cpus };
    Ok(OwnServer {
        program,
        arguments: server_options.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect(),
        directory,
        files,
        caches,
        memory: *server_memory,
        groups: server_group.clone(),
        cpus,
        network,
        link: *link,
    })
}

/// Reports how much space the study's files take until its end, and why there are fewer than requested.
fn report_files(args: &StudyArgs, target: &StudyTarget) {
    let StudyTarget::Own(OwnServer { files: FileSetSpec { count, bytes, limit }, caches, .. }) = target else { return };
    let bytes_per_file = bytes * caches.len() as u64;
    let twice_note = if caches.len() > 1 { ", twice" } else { "" };
    let reason = match requested_files(args).count {
        requested if requested <= *count => String::new(),
        requested if *count < limit / bytes_per_file => {
            format!("; {requested} would take more than half of the room there")
        }
        requested if *limit < args.options.write_limit => {
            format!("; {requested} would take more than a quarter of the free memory")
        }
        requested => format!("; {requested} would take more than --write-limit"),
    };
    let [total, size] = [count * bytes_per_file, *bytes].map(|bytes| decimal_bytes(bytes as f64));
    notice!("the server's files take {total} until the end: {count} of {size}{twice_note}{reason}");
}

/// The files of each set: what fits into memory, or at least twice of what the page cache may hold, or both.
fn choose_file_set(args: &StudyArgs, caches: &[CacheState], plan: &RunPlan) -> Result<FileSetSpec, CliError> {
    let memory = plan.machine.memory.available_bytes.get().copied();
    let max_bytes = memory.map_or(u64::MAX, |memory| memory / FREE_MEMORY_DIVISOR);
    match caches {
        [CacheState::Cached] => {
            Ok(FileSetSpec { limit: args.options.write_limit.min(max_bytes), ..requested_files(args) })
        }
        [_] => uncached_files(args, args.options.write_limit, memory),
        _ => files_of_both_caches(args, max_bytes),
    }
}

/// Those that are asked for, of which as many are made as may be.
fn requested_files(args: &StudyArgs) -> FileSetSpec {
    let StudyLoadArgs { file_count, file_size, .. } = args.load;
    let count = file_count.unwrap_or(if args.quick { QUICK_FILES } else { PUBLISHED_FILES });
    FileSetSpec { count, bytes: file_size.unwrap_or(PUBLISHED_FILE_BYTES), limit: args.options.write_limit }
}

/// Two sets of as many files: of one this host has all in memory, of the other a server with less memory has few.
fn files_of_both_caches(args: &StudyArgs, max_bytes: u64) -> Result<FileSetSpec, CliError> {
    const BOTH_CACHES_OPTION: &str = "--cache cached,uncached";
    let Some(memory) = args.load.server_memory else {
        bail!(
            "{BOTH_CACHES_OPTION}: this host cannot have the files in its page cache and not: give --server-memory as well"
        );
    };
    let needed = memory.saturating_mul(MIN_CACHE_MULTIPLE);
    if needed > max_bytes {
        let [needed, max_bytes] = [needed, max_bytes].map(bytes);
        bail!(
            "{BOTH_CACHES_OPTION}: files of at least {needed} are needed, and the page cache may have {max_bytes} of them: give less --server-memory"
        );
    }
    let limit = max_bytes.min(args.options.write_limit / 2);
    let file_set = uncached_files(args, limit, None)?;
    Ok(FileSetSpec { limit: file_set.limit.saturating_mul(2), ..file_set })
}

/// Files that the page cache does not hold.
fn uncached_files(args: &StudyArgs, limit: u64, memory: Option<u64>) -> Result<FileSetSpec, CliError> {
    let StudyLoadArgs { file_count, server_memory, .. } = args.load;
    let FileSetSpec { count, bytes: size, .. } = requested_files(args);
    let capacity = server_memory.or(memory).unwrap_or(u64::MAX);
    let needed = capacity.saturating_mul(MIN_CACHE_MULTIPLE);
    let default_count = capacity.saturating_mul(MAX_CACHE_MULTIPLE).min(limit) / size.max(1);
    let count = if file_count.is_none() { count.max(default_count) } else { count };
    if count.saturating_mul(size).min(limit) < needed {
        let [capacity_text, needed] = [capacity, needed].map(bytes);
        bail!(
            "--cache uncached: the page cache may hold {capacity_text}, so files of at least {needed} are needed: allow that by --write-limit, or give \
                 the server less memory by --server-memory"
        );
    }
    let max_count = capacity.saturating_mul(MAX_CACHE_MULTIPLE).div_ceil(size).max(1);
    Ok(FileSetSpec { count: if file_count.is_none() { count.min(max_count) } else { count }, bytes: size, limit })
}

/// A server that runs already.
fn running_server(args: &StudyLoadArgs) -> Result<ExistingServer, CliError> {
    let (Some(url), Some(list), Some(token)) = (&args.url, &args.url_list, &args.stats_token) else {
        bail!("--url needs --url-list and --stats-token");
    };
    let option = format!("--url-list {}", list.display());
    let text = read_named_text(list).context(&option)?;
    let (_, paths) = kelvin_http::load::url_list::parse_url_list(&text, Some(url.clone())).context(&option)?;
    let stats_address = match args.stats_address {
        Some(address) => address,
        None => *url.addresses().context("--url")?.first().ok_or_else(|| CliError::new("--url", "no address"))?,
    };
    let token = read_named_text(token).context(format_args!("--stats-token {}", token.display()))?;
    let token = token.trim_end().to_owned();
    Ok(ExistingServer { url: url.url.clone(), paths, stats_address, token, files: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_has_half_of_the_cpus_of_one_host() {
        let cpus = |count: u32, is_server_here| {
            let placement = Placement { cpu: count - 1, partner: None, allowed: (0..count).collect() };
            client_cpus(&Topology::default(), &placement, is_server_here)
        };
        assert_eq!([1, 2, 3].map(|count| cpus(count, true)), [vec![0], vec![1], vec![2]]);
        assert_eq!((cpus(8, true), cpus(512, true).len()), (vec![7, 6, 5, 4], 256));
        assert_eq!([1, 2, 4].map(|count| cpus(count, false)), [vec![0], vec![1], vec![3, 2, 1]]);
    }
}
