//! What reports show of machines of many CPUs.

mod synthetic;

use kelvin_analysis::testing::large_machine::{
    self, PAIRED_CPUS, SKIPPED_NODES, hybrid_run, line_nanoseconds, server_run,
};
use kelvin_core::catalogue::os::TaskKind;
use kelvin_core::{Run, SharedLevel};
use kelvin_report::figures::{Drawing, Figure, Heat, Plot, SeriesRole, figures};
use kelvin_report::{FirstScreen, Html, Markdown, Render, Terminal, svg};
use synthetic::{SyntheticReport, analysed};

fn figure(sample: &SyntheticReport, id: &str) -> Figure {
    figures(&sample.report()).into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

fn heat(sample: &SyntheticReport, id: &str) -> Heat {
    match figure(sample, id).drawing {
        Drawing::Heat(heat) => heat,
        Drawing::Plot(_) => panic!("{id} is a plot"),
    }
}

fn plot(sample: &SyntheticReport, id: &str) -> Plot {
    match figure(sample, id).drawing {
        Drawing::Plot(plot) => plot,
        Drawing::Heat(_) => panic!("{id} is a heat map"),
    }
}

fn rendered(run: Run, render: &dyn Render) -> String {
    let mut out = Vec::new();
    render.render(&analysed(run).report(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn cpus_of_heat_map_are_next_to_those_they_share_with() {
    let sample = analysed(server_run());
    let heat = heat(&sample, "mem.core_to_core");
    // Threads n and n + 64 of a core, four cores of a cache, eight of a node, 32 of a socket.
    let mut expected = PAIRED_CPUS;
    expected.sort_by_key(|cpu| (cpu % 64, cpu / 64));
    assert_eq!(heat.rows, expected.map(|cpu| cpu.to_string()));
    assert_eq!(heat.columns, heat.rows);
    let topology = &sample.run.header.machine.topology;
    for (row, from) in expected.into_iter().enumerate() {
        for (column, to) in expected.into_iter().enumerate() {
            let Some(cell) = heat.cell(row, column) else {
                assert_eq!(from, to, "only a CPU and itself has no cell");
                continue;
            };
            let share = cell.value / line_nanoseconds(topology.shared_level(from, to).unwrap());
            assert!((0.999..1.102).contains(&share), "{from} to {to}: {share}");
            assert_eq!(heat.cell(column, row).unwrap().value, cell.value);
        }
    }
    assert!(heat.unmeasured.is_empty());
}

#[test]
fn pairs_of_cpus_have_a_median_for_each_part_they_share() {
    let sample = analysed(server_run());
    let text = figure(&sample, "mem.core_to_core").description.concat();
    assert!(text.contains(", of 276 pairs."), "{text}");
    let topology = &sample.run.header.machine.topology;
    let pairs = PAIRED_CPUS.iter().flat_map(|from| PAIRED_CPUS.iter().map(move |to| (*from, *to)));
    let levels: Vec<SharedLevel> =
        pairs.filter(|(from, to)| from < to).map(|(from, to)| topology.shared_level(from, to).unwrap()).collect();
    for level in &levels {
        let count = levels.iter().filter(|other| *other == level).count();
        let counted = format!("({count} pairs)");
        let part = text.split(", ").find(|part| part.contains(&level.to_string())).unwrap();
        assert!(part.contains(&counted), "{part} {counted}");
    }
    assert!(text.contains("Medians by what the CPUs share: SMT siblings 8.60 ns (2 pairs), same L3 cache "), "{text}");
}

#[test]
fn node_pair_that_was_not_measured_is_an_empty_frame() {
    let sample = analysed(server_run());
    for id in ["mem.node.latency-bytes=64-MiB", "mem.node.bandwidth-bytes=64-MiB"] {
        let heat = heat(&sample, id);
        assert_eq!((heat.rows.len(), heat.columns.len(), heat.cells.len()), (8, 8, 63));
        assert_eq!(heat.unmeasured, [(SKIPPED_NODES.0 as usize, SKIPPED_NODES.1 as usize)]);
        let drawing = svg::standalone(&figure(&sample, id));
        assert_eq!(drawing.matches("<rect class=\"unmeasured\"").count(), 2, "the cell and the legend");
    }
}

#[test]
fn memory_curve_has_a_line_for_each_operation_over_logarithmic_cpus() {
    let sample = analysed(server_run());
    for (id, cpus) in [("mem.scaling-nodes=all-bytes=2-GiB", 128), ("mem.scaling-nodes=one-bytes=256-MiB", 16)] {
        let nodes = if cpus == 128 { "all nodes bytes=2 GiB" } else { "one node bytes=256 MiB" };
        let title = figure(&sample, id).title;
        assert!(title.ends_with(&format!(", one task each, {nodes}")), "{title}");
        let plot = plot(&sample, id);
        let measured: Vec<_> = plot.series.iter().filter(|series| series.role == SeriesRole::Measured).collect();
        assert_eq!(
            measured.iter().map(|series| series.label.as_str()).collect::<Vec<_>>(),
            ["read", "write", "copy", "triad"]
        );
        assert!(plot.x.logarithmic);
        let counts: Vec<f64> =
            (0..).map(|power| f64::from(1 << power)).take_while(|count| *count <= f64::from(cpus)).collect();
        for series in measured {
            assert_eq!(series.points.iter().map(|point| point.x).collect::<Vec<_>>(), counts);
        }
    }
}

#[test]
fn latency_of_working_cpus_has_a_figure_of_its_own() {
    let sample = analysed(server_run());
    let figure = figure(&sample, "mem.scaling.latency");
    let Drawing::Plot(plot) = figure.drawing else { panic!("a plot") };
    let measured = plot.series.iter().filter(|series| series.role == SeriesRole::Measured);
    assert_eq!(measured.map(|series| series.points.len()).collect::<Vec<_>>(), [5, 8]);
    assert!(plot.x.logarithmic);
}

#[test]
fn interleaved_memory_is_apart_from_the_matrix_of_nodes() {
    let sample = analysed(server_run());
    for metric in ["latency", "bandwidth"] {
        let figure = figure(&sample, &format!("mem.node.{metric}.interleaved"));
        let Drawing::Plot(plot) = figure.drawing else { panic!("a plot") };
        assert_eq!(plot.series[0].points.len(), 8);
    }
}

#[test]
fn service_lines_are_named_without_the_kind_in_the_title() {
    let sample = analysed(server_run());
    for metric in ["rate", "efficiency"] {
        let figure = figure(&sample, &format!("os.scaling.{metric}-kind=threads"));
        assert!(figure.title.ends_with(", threads"), "{}", figure.title);
        let Drawing::Plot(plot) = figure.drawing else { panic!("a plot") };
        let labels: Vec<&str> = plot.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels.len(), 7);
        assert_eq!(labels[..2], ["null call", "fork exit wait"]);
        assert!(plot.x.logarithmic);
    }
}

/// Names and places of the marks of a figure.
fn marks(sample: &SyntheticReport, id: &str) -> Vec<(String, f64)> {
    plot(sample, id).marks.into_iter().map(|mark| (mark.label, mark.at)).collect()
}

#[test]
fn knees_over_cpus_and_jobs_are_marked() {
    let sample = analysed(server_run());
    let mark = |label: &str, at| (label.to_owned(), at);
    assert_eq!(marks(&sample, "mem.scaling-nodes=all-bytes=2-GiB"), [mark("all stop growing at 16 of 128 CPUs", 16.0)]);
    assert_eq!(
        marks(&sample, "os.scaling.rate-kind=threads"),
        [
            mark("fork exit wait stops growing at 32", 32.0),
            mark("mmap munmap stops growing at 4", 4.0),
            mark("2 lines stop growing at 64", 64.0),
            mark("create unlink stops growing at 16", 16.0),
        ]
    );
    assert_eq!(marks(&sample, "os.scaling.efficiency-kind=threads"), [], "it never grows");
    assert_eq!(marks(&sample, "file.jobs.iops"), [mark("stops growing at 8 of 64 jobs", 8.0)]);
    let description = figure(&sample, "mem.scaling-nodes=all-bytes=2-GiB").description.join(" ");
    assert!(description.contains("read: from 22.0 GB/s at 1 to 320 GB/s at 128; stops growing at 16 of 128 CPUs. "));
    assert!(description.ends_with("A line stops growing where no greater number gives a tenth more."), "{description}");
    let drawing = svg::standalone(&figure(&sample, "file.jobs.iops"));
    assert_eq!(drawing.matches("class=\"mark-line\"").count(), 1);
    assert!(drawing.contains(">stops growing at 8 of 64 jobs</text>"), "{drawing}");
}

#[test]
fn band_of_knee_begins_where_growth_may_end() {
    let mut sample = analysed(server_run());
    let is_write = |end: &&mut kelvin_analysis::GrowthEnd| end.metric == *"mem.scaling.write" && end.max == 128;
    sample.analysis.growth_ends.iter_mut().find(is_write).unwrap().low = 8;
    let mark = &plot(&sample, "mem.scaling-nodes=all-bytes=2-GiB").marks[0];
    assert_eq!([mark.low, mark.at, mark.high], [8.0, 16.0, 16.0]);
}

#[test]
fn tables_name_knees() {
    let text = rendered(server_run(), &Terminal { width: 80, color: false });
    for line in ["    stops growing at 4 of 128 CPUs", "    stops growing at 8 of 64 jobs"] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    let text = rendered(server_run(), &Markdown);
    let line = "- `os.scaling.rate service=mmap_munmap kind=threads` stops growing at 4 of 128 CPUs\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn screen_of_study_names_services_and_knees() {
    let mut run = server_run();
    run.header.settings.mode = kelvin_core::Name::new("study");
    run.measurements.retain(|measurement| {
        let is_of_threads = TaskKind::of(&measurement.planned.case) == Some(TaskKind::Threads);
        measurement.planned.probe == *"os.scaling.rate" && is_of_threads
    });
    let screen = FirstScreen { terminal: Terminal::default(), unicode: true, tables: false, further_outputs: &[] };
    let text = rendered(run, &screen);
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 60, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("together, threads CPUs at work null call fork exit wait mmap munmap "), "{text}");
    let knees = "stop growing: fork exit wait at 32 of 128 CPUs, mmap munmap at 4 of 128 CPUs, page fault at ";
    assert!(words.contains(knees), "{text}");
}

#[test]
fn figures_of_kinds_of_cores_have_their_names() {
    let text = rendered(hybrid_run(), &Terminal { width: 80, color: false });
    for row in ["core.call kind=P-core cpu=7", "core.switch kind=E-core cpu=15", "core.load kind=LP E-core cpu=17"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    assert!(!text.contains("kind=0"), "{text}");
    let text = rendered(hybrid_run(), &Markdown);
    assert!(text.contains("`cpu.core.call kind=P-core cpu=7`"), "{text}");
}

#[test]
fn map_has_each_cpu_once_in_the_box_of_its_node() {
    let mut run = server_run();
    run.header.machine.topology = large_machine::server_topology(4);
    let page = rendered(run, &Html);
    let map = page.split("<ul class=\"places\">").nth(1).unwrap().split("</figure>").next().unwrap();
    let nodes: Vec<&str> = map.split("<p>socket ").skip(1).collect();
    assert_eq!(nodes.len(), 8);
    for (id, node) in nodes.into_iter().enumerate() {
        assert!(node.starts_with(&format!("{}, node {id} (64 GiB)</p>", id / 4)), "{node}");
        assert_eq!(node.matches("<p>L3 16 MiB</p>").count(), 4);
        // Core n has CPUs n and n + 128.
        for core in 16 * id..16 * (id + 1) {
            let numbers = format!(">{core} {}<", core + 128);
            assert_eq!((node.matches(&numbers).count(), map.matches(&numbers).count()), (1, 1), "{numbers}");
        }
    }
    assert_eq!(map.matches("<li class=\"measured\">").count(), 1);
    assert!(map.contains("<li class=\"measured\">127 255<"));
}

#[test]
fn map_names_kinds_of_cores() {
    let page = rendered(hybrid_run(), &Html);
    let kinds = page.matches("<p class=\"kind\">").count();
    assert_eq!(kinds, 3);
    assert!(page.contains("<p class=\"kind\">P-core</p><ul class=\"cores\"><li>0 1<li>2 3<"));
    assert!(page.contains("<p class=\"kind\">LP E-core</p><ul class=\"cores\"><li>16<li>17</ul>"));
}

#[test]
fn terminal_of_80_columns_has_medians_of_pairs_and_nodes() {
    let text = rendered(server_run(), &Terminal { width: 80, color: false });
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    let line = |start: &str| {
        text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start}"))
    };
    assert!(line("SMT siblings (2 pairs)").ends_with(" 8.60 ns"));
    assert!(line("different sockets (144 pairs)").ends_with(" ns"));
    assert_eq!(
        line("2  128").split_whitespace().collect::<Vec<_>>(),
        ["2", "128", "128", "115", "128", "240", "-", "240", "240"]
    );
}
