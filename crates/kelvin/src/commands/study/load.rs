//! `kelvin study load`: a file server, visited by numbers of users.

mod peer;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::{Between, Pattern};
use kelvin_harness::{Plan, Unit};
use kelvin_model::units::{bytes, decimal_bytes, seconds};
use kelvin_sweep::{Error, Load, Own, Running, Setup, Study, Target, Wanted, disk_rate as rate_of};

use super::Extent;
use crate::cli::{StudyArgs, StudyLoadArgs};
use crate::commands::run::{Checked, Destination};
use crate::fault::{Done, Fault};
use crate::measure::{MOST_OF_QUICK, Wishes};
use crate::output::{self, read_named_text};
use crate::place::Here;
use crate::prepare::Prepared;
use crate::private::Told;
use peer::Peer;

/// With --quick, without, and with --thorough: visits of 120 s, as published. A round is a visit to each number of users.
pub(super) const EXTENTS: [Extent; 3] =
    [Extent { budget: 60.0, rounds: 4 }, Extent { budget: 240.0, rounds: 8 }, Extent { budget: 11_520.0, rounds: 8 }];

/// Files of a quick study: as many as show a random choice, and are made in a second.
const QUICK_FILES: u64 = 128;
/// Files of the published study, and bytes of each.
const FILES: u64 = 10_000;
const FILE_BYTES: u64 = 2_000_000;
/// Share of the free memory that files in the page cache may take.
const SHARE_OF_MEMORY: u64 = 4;
/// The files of a server's disk are at least so many times what its page cache may hold, and so many where they may be written: what
/// is in the cache by chance is not asked of the disk.
const BEYOND_CACHE: u64 = 2;
const FAR_BEYOND_CACHE: u64 = 8;

/// Makes the study.
pub fn load(args: &StudyArgs) -> Done {
    let extent = EXTENTS[usize::from(!args.quick) + usize::from(args.thorough)];
    let here = Here::read()?;
    let wishes = Wishes {
        mode: "study",
        most: None,
        budget: extent.budget,
        rounds: extent.rounds,
        causes: 0.0,
        args: &args.measure,
        told: Told::with(args.to.with_private),
        members: Some(&[]),
    };
    let nothing = Plan { units: Vec::new(), left_out: Vec::new() };
    let to = Destination::new(&args.to, Vec::new());
    let checked = Checked::new(here, &nothing, &wishes, &to)?;
    let peer = peer::start(&args.load, &checked.prepared)?;
    let setup = setup(args, extent, (&checked.prepared, peer.as_ref()))?;
    let mut study = Study::prepare(&setup, &|| tell_files(args, &setup.target)).map_err(fault)?;
    study.expectations().iter().for_each(|line| output::remark(format_args!("kelvin: {line}")));
    let plan = plan(&study)?;
    let time = study.time().as_secs_f64();
    let wishes = Wishes { budget: time, ..wishes };
    let (visits, in_words) = (study.visits(), seconds(time.round()));
    let before = seconds(study.prepared().as_secs_f64().round());
    output::remark(format_args!(
        "kelvin: {visits} visits in about {in_words}, after {before} of preparation; {}",
        checked.whereto()
    ));
    let left_out = study.left_out();
    if !left_out.is_empty() {
        let most = seconds(MOST_OF_QUICK.as_secs_f64());
        output::remark_names(format!("kelvin: --quick takes at most {most}, and leaves out:"), &left_out);
    }
    checked.measure(&plan, &wishes, move |outline, sink| {
        study.conduct(outline, sink);
        drop(peer);
    })
}

/// Reads the files of a directory past the page cache, and prints how fast.
pub fn disk_rate(directory: &Path, milliseconds: u64) -> Done {
    // Whoever started it has put it where it belongs once its input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let rate = rate_of(directory, Duration::from_millis(milliseconds)).map_err(Fault::because)?;
    output::print_json(&rate)?;
    Ok(ExitCode::SUCCESS)
}

fn fault(error: Error) -> Fault {
    match error {
        Error::Group { .. } => Fault::new("--server-group", error),
        Error::Memory(_) => Fault::new("--server-memory", error),
        Error::Namespaces(_) => Fault::new("--between namespaces", error),
        Error::TooLong { .. } => Fault::new("--quick", error),
        error => Fault::because(error),
    }
}

/// Every case with the probe that documents it.
fn plan(study: &Study) -> Result<Plan, Fault> {
    let probes = kelvin_probes::all();
    let unit = |planned: kelvin_sweep::PlannedCase| {
        let probe = probes.iter().copied().find(|probe| *planned.probe == *probe.id);
        let probe = probe.ok_or_else(|| Fault::because(format!("there is no probe {}", planned.probe)))?;
        Ok(Unit::new(probe, planned.case))
    };
    let units: Result<Vec<Unit>, Fault> = study.cases().into_iter().map(unit).collect();
    Ok(Plan { units: units?, left_out: Vec::new() })
}

/// What the arguments ask for.
fn setup(args: &StudyArgs, extent: Extent, (prepared, peer): (&Prepared, Option<&Peer>)) -> Result<Setup, Fault> {
    let of_load = &args.load;
    let placement = &prepared.setup.placement;
    let others: Vec<u32> = placement.allowed.iter().copied().filter(|&cpu| cpu != placement.cpu).collect();
    let target = match (&of_load.url, peer) {
        (Some(_), _) => Target::Running(running(of_load)?),
        (None, Some(peer)) => Target::Running(peer.server.clone()),
        (None, None) => Target::Own(own(args, prepared, others)?),
    };
    Ok(Setup {
        target,
        loads: loads(of_load),
        users: (!of_load.users.is_empty()).then(|| sorted(&of_load.users)),
        visits: args.measure.rounds.unwrap_or(extent.rounds),
        budget: args.measure.budget.unwrap_or(Duration::from_secs_f64(extent.budget)),
        most: (args.quick && args.measure.budget.is_none()).then_some(MOST_OF_QUICK),
        is_kept: args.quick || args.measure.budget.is_some(),
        duration: of_load.visit,
        cpus: vec![placement.cpu],
        seed: args.measure.seed.unwrap_or(1),
    })
}

fn sorted(users: &[u32]) -> Vec<u64> {
    let mut users: Vec<u64> = users.iter().map(|&users| u64::from(users)).collect();
    users.sort_unstable();
    users.dedup();
    users
}

/// Every pattern with every think time.
fn loads(args: &StudyLoadArgs) -> Vec<Load> {
    let patterns: Vec<Pattern> = args.pattern.iter().map(|&pattern| pattern.into()).collect();
    let patterns = if patterns.is_empty() { vec![Pattern::Random] } else { patterns };
    let thinks = if args.think.is_empty() { vec![Duration::ZERO] } else { args.think.clone() };
    patterns.iter().flat_map(|&pattern| thinks.iter().map(move |&think| Load { pattern, think })).collect()
}

/// A server of the study's own. Without CPUs for it alone it has those of the client.
fn own(args: &StudyArgs, prepared: &Prepared, others: Vec<u32>) -> Result<Own, Fault> {
    let StudyLoadArgs { server_memory, between, link, server_group, server_options, .. } = &args.load;
    let between = between.map_or(Between::Loopback, Between::from);
    if link.is_some() && between != Between::Namespaces {
        return Err(Fault::new(
            "--link",
            "a link that can be limited is one between namespaces: add --between namespaces",
        ));
    }
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let (caches, directory) = (args.load.caches(), Path::new(&prepared.setup.scratch).to_owned());
    let wanted = wanted(args, &caches, prepared)?;
    let files = wanted.fit(&directory, caches.len()).map_err(fault)?;
    let cpus = if others.is_empty() { prepared.setup.placement.allowed.clone() } else { others };
    Ok(Own {
        program: vec![program],
        arguments: server_options.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect(),
        directory,
        files,
        caches,
        memory: *server_memory,
        groups: server_group.clone(),
        cpus,
        between,
        link: *link,
    })
}

/// Says what the files of a server of the study's own take until it is over, and why there are not as many as were asked for.
fn tell_files(args: &StudyArgs, target: &Target) {
    let Target::Own(Own { files: Wanted { count, bytes, limit }, caches, .. }) = target else { return };
    let of_one = bytes * caches.len() as u64;
    let twice = if caches.len() > 1 { ", twice" } else { "" };
    let fewer = match asked(args).count {
        asked if asked <= *count => String::new(),
        asked if *count < limit / of_one => format!("; {asked} would take more than half of the room there"),
        asked if *limit < args.measure.write_limit => {
            format!("; {asked} would take more than a quarter of the free memory")
        }
        asked => format!("; {asked} would take more than --write-limit"),
    };
    let [all, each] = [count * of_one, *bytes].map(|bytes| decimal_bytes(bytes as f64));
    output::remark(format_args!(
        "kelvin: the server's files take {all} until the end: {count} of {each}{twice}{fewer}"
    ));
}

/// The files of each set: what fits into memory, or at least twice of what the page cache may hold, or both.
fn wanted(args: &StudyArgs, caches: &[CacheState], prepared: &Prepared) -> Result<Wanted, Fault> {
    let memory = prepared.machine.memory.available_bytes.get().copied();
    let most = memory.map_or(u64::MAX, |memory| memory / SHARE_OF_MEMORY);
    match caches {
        [CacheState::Cached] => Ok(Wanted { limit: args.measure.write_limit.min(most), ..asked(args) }),
        [_] => beyond_cache(args, args.measure.write_limit, memory),
        _ => of_both(args, most),
    }
}

/// Those that are asked for, of which as many are made as may be.
fn asked(args: &StudyArgs) -> Wanted {
    let StudyLoadArgs { file_count, file_size, .. } = args.load;
    let count = file_count.unwrap_or(if args.quick { QUICK_FILES } else { FILES });
    Wanted { count, bytes: file_size.unwrap_or(FILE_BYTES), limit: args.measure.write_limit }
}

/// Two sets of as many files: of one this host has all in memory, of the other a server with less memory has few.
fn of_both(args: &StudyArgs, most: u64) -> Result<Wanted, Fault> {
    const BOTH: &str = "--cache cached,uncached";
    let Some(memory) = args.load.server_memory else {
        return Err(Fault::new(
            BOTH,
            "this host cannot have the files in its page cache and not: give --server-memory as well",
        ));
    };
    let needed = memory.saturating_mul(BEYOND_CACHE);
    if needed > most {
        let [needed, most] = [needed, most].map(bytes);
        return Err(Fault::new(
            BOTH,
            format!(
                "files of at least {needed} are needed, and the page cache may have {most} of them: give less --server-memory"
            ),
        ));
    }
    let limit = most.min(args.measure.write_limit / 2);
    let wanted = beyond_cache(args, limit, None)?;
    Ok(Wanted { limit: wanted.limit.saturating_mul(2), ..wanted })
}

/// Files that the page cache does not hold.
fn beyond_cache(args: &StudyArgs, limit: u64, memory: Option<u64>) -> Result<Wanted, Fault> {
    let StudyLoadArgs { file_count, server_memory, .. } = args.load;
    let Wanted { count, bytes: size, .. } = asked(args);
    let may_hold = server_memory.or(memory).unwrap_or(u64::MAX);
    let needed = may_hold.saturating_mul(BEYOND_CACHE);
    let usual = may_hold.saturating_mul(FAR_BEYOND_CACHE).min(limit) / size.max(1);
    let count = if file_count.is_none() { count.max(usual) } else { count };
    if count.saturating_mul(size).min(limit) < needed {
        let [may_hold, needed] = [may_hold, needed].map(bytes);
        return Err(Fault::new(
            "--cache uncached",
            format!(
                "the page cache may hold {may_hold}, so files of at least {needed} are needed: allow that by --write-limit, or give \
                 the server less memory by --server-memory"
            ),
        ));
    }
    let most = may_hold.saturating_mul(FAR_BEYOND_CACHE).div_ceil(size).max(1);
    Ok(Wanted { count: if file_count.is_none() { count.min(most) } else { count }, bytes: size, limit })
}

/// A server that runs already.
fn running(args: &StudyLoadArgs) -> Result<Running, Fault> {
    let (Some(url), Some(list), Some(token)) = (&args.url, &args.url_list, &args.resources_token) else {
        return Err(Fault::because("--url needs --url-list and --resources-token"));
    };
    let wrong = |why: &dyn std::fmt::Display| Fault::new(format!("--url-list {}", list.display()), why);
    let text = read_named_text(list).map_err(|error| wrong(&error))?;
    let (_, paths) = kelvin_load::files::list(&text, Some(url.clone())).map_err(|why| wrong(&why))?;
    let resources = match args.resources {
        Some(address) => address,
        None => *url
            .addresses()
            .map_err(|why| Fault::new("--url", why))?
            .first()
            .ok_or_else(|| Fault::new("--url", "no address"))?,
    };
    let token =
        read_named_text(token).map_err(|error| Fault::new(format!("--resources-token {}", token.display()), error))?;
    let token = token.trim_end().to_owned();
    Ok(Running { url: url.url.clone(), paths, resources, token, files: None })
}
