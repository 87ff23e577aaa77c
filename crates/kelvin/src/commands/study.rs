//! `kelvin study`: one of the long experiments, or a measure of a plain run in its full form.

mod load;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_catalogue::file::{CACHE_SIZE, WHOLE};
use kelvin_catalogue::load::THROUGHPUT;
use kelvin_catalogue::transfer::{Files, TIME, has_kernel_end};
use kelvin_harness::{Effort, Plan, Probe, ProbeKind, Unit};
use kelvin_model::units::bytes;
use kelvin_model::{Case, Reason};
use kelvin_sys::kernel_end::{Device, KernelEnd};

use crate::cli::{MINIMUM, StudyArgs};
use crate::commands::page;
use crate::commands::run::{self, Destination};
use crate::fault::{Done, Fault};
use crate::measure::{MOST_OF_QUICK, Wishes};
use crate::output;
use crate::place::Here;
use crate::private::Told;
use crate::selection::{Needing, plan_of};

pub use load::disk_rate;

/// Default seconds and rounds.
#[derive(Clone, Copy)]
struct Extent {
    budget: f64,
    rounds: u32,
}

/// Of a study, with `--quick`, without, and with `--thorough`.
const USUAL: [Extent; 3] =
    [Extent { budget: 20.0, rounds: 3 }, Extent { budget: 60.0, rounds: 5 }, Extent { budget: 600.0, rounds: 50 }];
/// Of the study of transfers, whose rounds have 5 trials, but one of the large files: 100 trials of the others as published, and as
/// many of the large files with `--thorough`. A budget is what its rounds take where 512 bytes a call move 400 MB/s.
const OF_TRANSFERS: [Extent; 3] =
    [Extent { budget: 120.0, rounds: 5 }, Extent { budget: 900.0, rounds: 20 }, Extent { budget: 9000.0, rounds: 100 }];

/// Of studies whose rounds take ten seconds or more: files read whole, most of it 100 million calls, and the size of the file cache,
/// which each round looks for anew.
const OF_LONG_ROUNDS: [Extent; 3] =
    [Extent { budget: 20.0, rounds: 3 }, Extent { budget: 300.0, rounds: 4 }, Extent { budget: 600.0, rounds: 20 }];

/// Rounds of every combination: as many as show a spread, which take as long as they take.
const ROUNDS_OF_ALL_TRANSFERS: u32 = 3;

/// Least time limit of a round of transfers: 364 MB at 10 MB/s, received and compared, and as much again.
const ROUND_OF_TRANSFERS: Duration = Duration::from_secs(120);
/// The same of those: 100 million calls of a microsecond each.
const LONG_ROUND: Duration = Duration::from_secs(100);

/// `kelvin study`.
pub fn study(args: &StudyArgs) -> Done {
    if args.published {
        return published(&args.name, args.to.json);
    }
    if args.name == page::NAME {
        return page::page(args);
    }
    let chosen = named(&args.name)?;
    if chosen.metrics[0].area() == THROUGHPUT.area() {
        return load::load(args);
    }
    if let Some(option) = args.load.given() {
        return Err(Fault::new(option, "the study load alone has it: leave it out"));
    }
    let here = Here::read()?;
    if let Some(needing) = Needing::of(chosen) {
        needing.check(chosen.id, &args.measure)?;
    }
    // A study has all its points; a probe has some that a plain run leaves out.
    let usual = if chosen.kind == ProbeKind::Study { Effort::Default } else { Effort::Thorough };
    let (effort, at) = match (args.quick, args.thorough) {
        (true, _) => (Effort::Quick, 0),
        (_, false) => (usual, 1),
        (_, true) => (Effort::Thorough, 2),
    };
    let plan = plan_of(chosen.kind, &[whole(chosen).to_owned()], &here, effort)?;
    let plan = if args.full { with_all_combinations(plan, chosen)? } else { plan };
    let plan = without_devices(only(plan, &args.only, &here)?, &here);
    // What is compared must be measured close together: states of the machine last for seconds.
    let plan = plan.in_blocks(|case| Files::of(case).map_or(0, |files| 1 + files as u32));
    let (moved, is_long) = (moved(&plan), [WHOLE.id, CACHE_SIZE.id].iter().any(|id| id.as_str() == chosen.id));
    let mut measure = args.measure.clone();
    if is_long {
        measure.round_limit = measure.round_limit.max(LONG_ROUND);
    }
    let Extent { budget, rounds } = match moved {
        0 if is_long => OF_LONG_ROUNDS[at],
        0 => USUAL[at],
        _ if args.full => {
            measure.budget.get_or_insert(MINIMUM);
            Extent { rounds: ROUNDS_OF_ALL_TRANSFERS, ..OF_TRANSFERS[at] }
        }
        _ => OF_TRANSFERS[at],
    };
    if moved > 0 {
        announce(moved, args.measure.rounds.unwrap_or(rounds), args.measure.write_limit);
        measure.round_limit = measure.round_limit.max(ROUND_OF_TRANSFERS);
    }
    let (most, told) = (args.quick.then_some(MOST_OF_QUICK), Told::with(args.to.with_private));
    let wishes = Wishes { mode: "study", budget, most, rounds, causes: 0.0, args: &measure, told };
    run::carry_out(here, plan, &wishes, &Destination::new(&args.to, Vec::new()))
}

/// The study of transfers with every combination of their factors.
fn with_all_combinations(mut plan: Plan, study: &'static Probe) -> Result<Plan, Fault> {
    if study.id != TIME.id.as_str() {
        return Err(Fault::new(
            "--full",
            "the study transfer alone has combinations: leave it out, or give --thorough",
        ));
    }
    let known: BTreeSet<Case> =
        plan.units.iter().filter(|unit| !unit.only_input).map(|unit| unit.case.clone()).collect();
    let new = kelvin_probes::all_transfers().into_iter().filter(|case| !known.contains(case));
    plan.units.extend(new.map(|case| Unit::new(study, case)));
    Ok(plan)
}

/// Prints a published study as its figures alone judge it, as text or JSON.
fn published(name: &str, as_json: bool) -> Done {
    let study = kelvin_analysis::published_load();
    if study.id != *name {
        return Err(Fault::because(format!(
            "--published: no published study is called '{name}'; there is {}",
            study.id
        )));
    }
    match as_json {
        true => output::print_json(&study)?,
        false => output::print_as_it_is(|out| output::terminal(output::color()).write_study(&study, out))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The cases with these values of their axes.
fn only(plan: Plan, wanted: &[(String, String)], here: &Here) -> Result<Plan, Fault> {
    let has = |case: &Case, (axis, value): &(String, String)| {
        case.iter().any(|(name, its)| name.as_str() == axis && its.to_string() == *value)
    };
    let own = || plan.units.iter().filter(|unit| !unit.only_input);
    if let Some((axis, value)) = wanted.iter().find(|one| !own().any(|unit| has(&unit.case, one))) {
        return Err(Fault::because(format!("--only {axis}={value}: no case of this study has it")));
    }
    let is_wanted =
        |case: &Case| wanted.iter().all(|(axis, _)| wanted.iter().any(|one| one.0 == *axis && has(case, one)));
    if !wanted.is_empty() && !own().any(|unit| is_wanted(&unit.case)) {
        return Err(Fault::because("--only: no case of this study has all of these values"));
    }
    if wanted.is_empty() { Ok(plan) } else { Ok(plan.only((&kelvin_probes::all(), &here.machine), is_wanted)) }
}

/// Without the cases of ends in the kernel where its module cannot be used, which is said.
fn without_devices(plan: Plan, here: &Here) -> Plan {
    let Some(missing) = [Device::Sender, Device::Receiver].into_iter().find_map(|device| KernelEnd::open(device).err())
    else {
        return plan;
    };
    let reason = Reason::new(format!("needs the kernel module: {missing}"));
    let of_kernel = plan.units.iter().filter(|unit| has_kernel_end(&unit.case));
    let left_out: Vec<_> = of_kernel.map(|unit| (unit.probe, unit.case.clone(), reason.clone())).collect();
    if left_out.is_empty() {
        return plan;
    }
    output::remark(format!("kelvin: {} cases with ends in the kernel are left out: {missing}", left_out.len()));
    let mut plan = plan.only((&kelvin_probes::all(), &here.machine), |case| !has_kernel_end(case));
    plan.left_out.extend(left_out);
    plan
}

/// The study, or the probe of a plain run, of a name.
fn named(name: &str) -> Result<&'static Probe, Fault> {
    let probes = kelvin_probes::all();
    let of = |kind: ProbeKind| probes.iter().copied().filter(move |probe| probe.kind == kind);
    let study = of(ProbeKind::Study).find(|probe| probe.id == name || short(probe) == name);
    let in_full = || of(ProbeKind::Measure).find(|probe| probe.id == name);
    study.or_else(in_full).ok_or_else(|| {
        let studies = of(ProbeKind::Study).flat_map(|probe| [short(probe), probe.id]);
        let known = studies.chain([page::NAME]).chain(of(ProbeKind::Measure).map(|probe| probe.id));
        let near = nearest(name, known).join(", ");
        Fault::because(format!("no study is called '{name}'; near are {near}; `kelvin list --studies` lists all"))
    })
}

/// The three names that are nearest to one, none twice.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // A name that begins or ends like it is nearer than one of the same length.
    let distance = |known: &str| {
        let last = known.rsplit('.').next().unwrap_or(known);
        let is_part = !name.is_empty() && (known.starts_with(name) || last.starts_with(name));
        (!is_part, strsim::damerau_levenshtein(name, known).min(1 + strsim::damerau_levenshtein(name, last)))
    };
    let mut near: Vec<&str> = known.collect::<BTreeSet<&str>>().into_iter().collect();
    near.sort_by_key(|known| distance(known));
    near.truncate(3);
    near
}

/// What a study is called: the last part of its id, or its area where it has one to itself.
fn short(study: &Probe) -> &'static str {
    if [TIME.id, THROUGHPUT.id].iter().any(|id| id.as_str() == study.id) {
        study.metrics[0].area()
    } else {
        study.id.rsplit('.').next().unwrap_or(study.id)
    }
}

/// What selects all of a study: its area where that is all one study, as that of transfers, of files in memory and of others.
fn whole(study: &Probe) -> &'static str {
    if study.id == TIME.id.as_str() { TIME.area() } else { study.id }
}

/// Bytes that one round of each case moves into files.
fn moved(plan: &Plan) -> u64 {
    plan.units.iter().map(|unit| kelvin_probes::transferred(&unit.case)).sum()
}

/// Says how much is moved, and what of it may be written.
fn announce(moved: u64, rounds: u32, limit: u64) {
    output::remark(format!(
        "kelvin: {} or more will be moved through the page cache, in {rounds} rounds or more; each target is removed before it is \
         written back, and what reaches the device nevertheless is at most {} (--write-limit)",
        bytes(moved * u64::from(rounds)),
        bytes(limit)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help_of;

    #[test]
    fn unknown_study_suggests_the_nearest_three_none_twice() {
        let says = |name: &str| named(name).map(|_| ()).unwrap_err().to_string();
        assert!(says("transfre").contains("near are transfer, "), "{}", says("transfre"));
        let near = nearest("peer", ["net.peer.rtt", "net.peer.rtt", "net.peer", "os.tasks", "peers"].into_iter());
        assert_eq!(near, ["net.peer", "peers", "net.peer.rtt"]);
    }

    #[test]
    fn the_help_tells_the_usual_time_and_rounds() {
        let time = |extent: &Extent| match extent.budget {
            seconds if seconds < 60.0 => format!("{seconds}s"),
            seconds => format!("{}m", seconds / 60.0),
        };
        let (budget, rounds) = (help_of("study", "budget"), help_of("study", "rounds"));
        let [quick, usual, thorough] = &USUAL;
        let told = [&quick, &usual, &thorough].map(|extent| time(extent));
        let words = format!("[default: {}; {} with --quick, {} with --thorough;", told[1], told[0], told[2]);
        assert!(budget.contains(&words), "{words}: {budget}");
        let words =
            format!("[default: {}; {} with --quick, {} with --thorough;", usual.rounds, quick.rounds, thorough.rounds);
        assert!(rounds.contains(&words), "{words}: {rounds}");
        for (name, [quick, usual, thorough]) in
            [("transfer", &OF_TRANSFERS), ("file.whole and file.cache_size", &OF_LONG_ROUNDS), ("load", &load::EXTENTS)]
        {
            let words = format!("of {name} {}, {} and {}", time(usual), time(quick), time(thorough));
            assert!(budget.contains(&words), "{words}: {budget}");
            let words = format!("of {name} {}, {} and {}", usual.rounds, quick.rounds, thorough.rounds);
            assert!(rounds.contains(&words), "{words}: {rounds}");
        }
    }
}
