//! `kelvin run`: measure, print the table, store the run, write the report.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_analysis::{Analysis, Outcome};
use kelvin_file::user_file::UserFile;
use kelvin_harness::{Effort, Judge, Plan, Probe, ProbeKind, Unit, supervise};
use kelvin_model::{Labels, Need, Outline, Reference, RunStatus};
use kelvin_report::{Html, Json, Render, Report};
use kelvin_store::labels;

use crate::budget::Fitted;
use crate::cli::{DestinationArgs, RunArgs, StoreArgs, SweepArgs};
use crate::commands::{existing_store, explain, local_store, open_store, report};
use crate::costs::{Conditions, Costs};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::gaps;
use crate::keeper::Keeper;
use crate::measure::{Finished, MOST_OF_QUICK, Wishes, effort_defaults, measure};
use crate::members::Beside;
use crate::output;
use crate::place::Here;
use crate::prepare::Prepared;
use crate::private::Told;
use crate::selection::{Selection, plan_of, studies_that_need};

/// `kelvin run`.
pub fn run(args: &RunArgs) -> Done {
    let here = Here::read()?;
    let effort = match (args.quick, args.thorough) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Thorough,
        _ => Effort::Default,
    };
    let beside = Beside::named(&args.beside)?;
    let plan = Selection::of(&args.names, "kelvin study")?.plan(&args.measure, &here, effort)?;
    let (plan, more) = with_rivals(plan, args.rivals, &here, effort)?;
    let (mode, budget, rounds) = effort_defaults(effort, blocks(&plan) + more);
    let causes = if effort == Effort::Quick { 0.0 } else { gaps::SHARE };
    let (most, told) = (args.quick.then_some(MOST_OF_QUICK), Told::with(args.to.with_private));
    let wishes =
        Wishes { mode, budget, most, rounds, causes, args: &args.measure, told, members: Some(&beside.members) };
    let text = match (args.full, args.names.is_empty()) {
        (true, _) => Text::Full,
        (_, true) => Text::Screen,
        (_, false) => Text::ScreenAndTables,
    };
    carry_out(here, plan, &wishes, &Destination { text, ..Destination::new(&args.to, beside.published) })
}

/// `kelvin file sweep`: the area of files and disks with all its points.
pub fn sweep(args: &SweepArgs) -> Done {
    let here = Here::read()?;
    let effort = Effort::Thorough;
    let plan = plan_of(ProbeKind::Measure, &["file".to_owned()], &here, effort)?;
    let (plan, more) = with_rivals(plan, args.rivals, &here, effort)?;
    let (mode, budget, rounds) = effort_defaults(effort, blocks(&plan) + more);
    let told = Told::with(args.to.with_private);
    let wishes =
        Wishes { mode, budget, most: None, rounds, causes: gaps::SHARE, args: &args.measure, told, members: Some(&[]) };
    carry_out(here, plan, &wishes, &Destination::new(&args.to, Vec::new()))
}

/// Blocks of time for the studies of `--rivals` of an area: starting a program such as fio takes far longer than any other round, and
/// there are more of files than of all else.
fn blocks_of_rivals(area: &str) -> usize {
    if area == "file" { 4 } else { 1 }
}

/// The plan with other programs beside kelvin, if asked for, and the blocks of time that they take.
fn with_rivals(plan: Plan, wanted: bool, here: &Here, effort: Effort) -> Result<(Plan, usize), Fault> {
    if !wanted {
        return Ok((plan, 0));
    }
    let area = |probe: &Probe| probe.metrics[0].area();
    let is_asked = |of: &str| plan.units.iter().any(|unit: &Unit| !unit.only_input && area(unit.probe) == of);
    let studies = studies_that_need(Need::Rivals);
    let areas: BTreeSet<&str> = studies.iter().map(|study| area(study)).collect();
    let studies: Vec<&Probe> = studies.into_iter().filter(|study| is_asked(area(study))).collect();
    if studies.is_empty() {
        let areas: Vec<&str> = areas.into_iter().collect();
        return Err(Fault::because(format!(
            "--rivals: other programs measure only {}, and this run measures none of these; name one too (kelvin run file --rivals), \
             or drop --rivals",
            areas.join(", ")
        )));
    }
    let asked: BTreeSet<&str> = studies.iter().map(|study| area(study)).collect();
    let names: Vec<String> = studies.iter().map(|study| study.id.to_string()).collect();
    let rivals = plan_of(ProbeKind::Study, &names, here, effort)?;
    Ok((plan.and(rivals), asked.into_iter().map(blocks_of_rivals).sum()))
}

/// What a run prints for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// The first screen, or that of a study; all tables where there is none.
    Screen,
    /// The same, then the tables of what was asked for.
    ScreenAndTables,
    /// All tables and conclusions.
    Full,
}

/// Where a run goes.
pub struct Destination<'a> {
    /// The store, unless the run is not stored.
    pub store: Option<&'a StoreArgs>,
    /// What is said of the run there.
    pub labels: Labels,
    /// The page, unless none is written.
    pub page: Option<&'a Path>,
    /// The JSON that standard output gets, if it gets that.
    pub json: Option<Json>,
    /// What standard output gets else.
    pub text: Text,
    /// Published machines to compare with.
    pub references: Vec<Reference>,
}

impl<'a> Destination<'a> {
    /// The command line, and the machines that it names; the screen is printed where there is one.
    pub fn new(args: &'a DestinationArgs, references: Vec<Reference>) -> Self {
        Self {
            store: (!args.no_store).then_some(&args.store),
            labels: labels(&args.tags, args.note.as_deref()),
            page: (!args.no_report).then_some(&args.report),
            json: args.json.then_some(Json { pretty: false, samples: args.with_samples }),
            text: Text::Screen,
            references,
        }
    }
}

/// Measures a plan and shows it. Everything that can be wrong with the options is checked first.
pub fn carry_out(here: Here, plan: Plan, wishes: &Wishes<'_>, to: &Destination<'_>) -> Done {
    let fitted = fitted(plan, wishes, &here, to)?;
    supervised(here, &fitted, wishes, to, show)
}

/// A plan and its time, as far as earlier runs tell.
///
/// # Errors
/// If nothing fits, or the store fails.
pub fn fitted(plan: Plan, wishes: &Wishes<'_>, here: &Here, to: &Destination<'_>) -> Result<Fitted, Fault> {
    Fitted::new(plan, wishes, &costs(here, wishes, to)?)
}

/// Measures a plan in fresh processes, and does with the run what is to be done with it.
///
/// # Errors
/// A run that never began or cannot be written, and those of `then`.
pub fn supervised<T>(
    here: Here,
    fitted: &Fitted,
    wishes: &Wishes<'_>,
    to: &Destination<'_>,
    then: impl FnOnce(Finished, &Destination<'_>, Option<UserFile>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (plan, budget) = (&fitted.plan, fitted.budget);
    let wishes = Wishes { budget: budget.seconds, ..*wishes };
    let mut checked = Checked::new(here, plan, &wishes, to)?;
    fitted.announce(&checked.whereto());
    checked.prepared.write_remote_files(plan, wishes.args)?;
    let options = checked.prepared.options(plan, budget, wishes.args.round_limit);
    let conduct = |outline: &Outline, judge: &mut dyn Judge| {
        supervise(plan, outline, &options, judge);
    };
    checked.measured(plan, &wishes, budget.causes, conduct, then)
}

/// What its rounds are expected to take. A store that is not there yet teaches nothing, and is made once all options are checked.
fn costs(here: &Here, wishes: &Wishes<'_>, to: &Destination<'_>) -> Result<Costs, Fault> {
    let Some(store) = to.store.map(existing_store).transpose()?.flatten() else {
        return Ok(Costs::of_table(&here.machine));
    };
    let conditions = Conditions::of(&here.machine, here.allowed.len(), &wishes.args.dir);
    Costs::learned(&here.machine, conditions, &store)
}

/// A run whose options are checked, and whose ends are open.
pub struct Checked<'a> {
    /// The setup.
    pub prepared: Prepared,
    page: Option<UserFile>,
    keeper: Option<Keeper>,
    to: &'a Destination<'a>,
}

impl<'a> Checked<'a> {
    /// Checks all options.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(here: Here, plan: &Plan, wishes: &Wishes<'_>, to: &'a Destination<'a>) -> Result<Self, Fault> {
        let prepared = Prepared::new(here, plan, wishes.args)?;
        let page = to.page.map(UserFile::find).transpose().map_err(Fault::because)?;
        let keeper = |args| Keeper::new(open_store(args)?, to.labels.clone(), local_store);
        let keeper = to.store.map(keeper).transpose()?;
        Ok(Self { prepared, page, keeper, to })
    }

    /// Where the run will be written, in words.
    pub fn whereto(&self) -> String {
        let stored = self.keeper.as_ref().map_or("not stored".into(), |keeper| {
            let by_way = keeper.waits_in().map(|file| format!(" by way of {file}")).unwrap_or_default();
            format!("stored in {}{by_way}", keeper.store().name())
        });
        let page = self.to.page.map_or("no report".into(), |page| format!("report in {}", page.display()));
        format!("{stored}; {page}")
    }

    /// Measures a plan as it is conducted, and shows the run.
    ///
    /// # Errors
    /// A run that never began, or cannot be written.
    pub fn measure(self, plan: &Plan, wishes: &Wishes<'_>, conduct: impl FnOnce(&Outline, &mut dyn Judge)) -> Done {
        self.measured(plan, wishes, Duration::ZERO, conduct, show)
    }

    fn measured<T>(
        self,
        plan: &Plan,
        wishes: &Wishes<'_>,
        causes: Duration,
        conduct: impl FnOnce(&Outline, &mut dyn Judge),
        then: impl FnOnce(Finished, &Destination<'_>, Option<UserFile>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut finished = measure(plan, wishes, (self.prepared, self.keeper.as_ref()), causes, conduct)?;
        finished.run.labels = self.to.labels.clone();
        let done = then(finished, self.to, self.page);
        if let (Some(keeper), Some(args)) = (self.keeper, self.to.store) {
            send(keeper, args);
        }
        done
    }
}

/// Sends a run to its server, if it has one. The connection of before the run may be long dead, so that this is a new one.
fn send(keeper: Keeper, args: &StoreArgs) {
    let Some(file) = keeper.waits_in().map(str::to_owned) else { return };
    // From here on the run is no longer being recorded.
    drop(keeper);
    if let Err(error) = open_store(args) {
        output::remark(format_args!(
            "kelvin: the run waits in {file} for the next kelvin that reaches its server: {error}"
        ));
    }
}

/// Blocks of time for the areas of a plan: the processor and the operating system share one.
pub fn blocks(plan: &Plan) -> usize {
    let block = |area: &'static str| if area == "cpu" { "os" } else { area };
    let asked = plan.units.iter().filter(|unit| !unit.only_input);
    asked.map(|unit| block(unit.probe.metrics[0].area())).collect::<BTreeSet<_>>().len().max(1)
}

/// Prints a finished run, writes its page, and says how well it went.
fn show(finished: Finished, to: &Destination<'_>, page: Option<UserFile>) -> Done {
    let Finished { run, analysis, trouble } = finished;
    let probes = explain::texts();
    let beside = Report { run: &run, analysis: &analysis, references: &to.references, probes: &probes };
    let printed = match to.json {
        Some(json) => output::print_as_it_is(|out| json.render(&beside, out)),
        None => print(&beside, to),
    };
    let paged = page.map_or(Ok(()), |page| {
        let all = if to.references.is_empty() { kelvin_analysis::references() } else { &to.references };
        page.write(|out: &mut dyn Write| Html.render(&Report { references: all, ..beside }, out))
            .map_err(Fault::because)
    });
    if let Some(trouble) = trouble {
        // All may be on one disk that is full.
        for fault in [printed, paged].into_iter().filter_map(Result::err) {
            output::remark(format_args!("kelvin: {fault}"));
        }
        return Err(trouble);
    }
    printed?;
    paged?;
    Ok(status(&analysis, &run.status))
}

/// Prints a run for people.
fn print(report: &Report<'_>, to: &Destination<'_>) -> Result<(), Fault> {
    let stored = to.store.is_some().then(|| report::in_full("last"));
    let page = to.page.map(|page| (page.display().to_string(), "the same, drawn".to_owned()));
    let more: Vec<(String, String)> = stored.into_iter().chain(page).chain([report::why()]).collect();
    let color = output::color();
    output::print_as_it_is(|out| match to.text {
        Text::Full => output::terminal(color).render(report, out),
        Text::Screen => output::first_screen(color, false, &more).render(report, out),
        Text::ScreenAndTables => output::first_screen(color, true, &more).render(report, out),
    })
}

/// 0, or 1 if a probe failed or the run was interrupted.
fn status(analysis: &Analysis, ended: &RunStatus) -> ExitCode {
    let failed = analysis.results.iter().any(|result| matches!(result.outcome, Outcome::Failed(_)));
    let whole = *ended == RunStatus::Complete;
    if failed || !whole { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS }
}
