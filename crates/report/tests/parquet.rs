//! Parquet of the made-up runs, read back by the crate `parquet`.
#![cfg(feature = "parquet")]

mod synthetic;

use std::collections::BTreeMap;
use std::fs::File;

use kelvin_core::{Labels, Readings};
use kelvin_report::exports::parquet::UNITS_KEY;
use kelvin_report::{Parquet, ParquetSamples, Render};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use synthetic::SyntheticReport;

fn file(format: &dyn Render, sample: &SyntheticReport) -> SerializedFileReader<File> {
    let mut out = tempfile::tempfile().unwrap();
    format.render(&sample.report(), &mut out).unwrap();
    SerializedFileReader::new(out).unwrap()
}

fn rows(file: &SerializedFileReader<File>) -> Vec<BTreeMap<String, Field>> {
    let fields = |row: Row| row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect();
    file.get_row_iter(None).unwrap().map(|row| fields(row.unwrap())).collect()
}

fn double_field(value: Option<f64>) -> Field {
    value.map_or(Field::Null, Field::Double)
}

#[test]
fn figures_round_trip() {
    for sample in [synthetic::full(), synthetic::partial(), synthetic::hostile()] {
        let rows = rows(&file(&Parquet, &sample));
        assert_eq!(rows.len(), sample.analysis.results.len());
        for (row, result) in rows.iter().zip(&sample.analysis.results) {
            let summary = result.outcome.summary();
            assert_eq!(row["metric"], Field::Str(result.metric.id.to_string()));
            assert_eq!(row["headline"], double_field(summary.map(|summary| summary.headline)));
            let interval = summary.and_then(|summary| summary.interval);
            assert_eq!(row["upper"], double_field(interval.map(|interval| interval.upper)));
            assert_eq!(row["predicted"], double_field(result.prediction.as_ref().map(|prediction| prediction.value)));
            assert_eq!(row["only_input"], Field::Bool(result.only_input));
            for (axis, value) in result.case.iter() {
                let axis_text = match &row[&format!("axis_{axis}")] {
                    Field::ULong(number) => number.to_string(),
                    Field::Str(word) => word.clone(),
                    other => panic!("{axis}: {other:?}"),
                };
                assert_eq!(axis_text, value.to_string());
            }
        }
    }
}

#[test]
fn rows_have_run_tags_and_note() {
    let mut sample = synthetic::full();
    sample.run.labels.tags = [("kernel", "6.18"), ("by", "ci")].map(|(name, value)| (name.into(), value.into())).into();
    for format in [&Parquet as &dyn Render, &ParquetSamples] {
        let rows = rows(&file(format, &sample));
        assert!(!rows.is_empty());
        for row in rows {
            assert_eq!((&row["run_tags"], &row["run_note"]), (&Field::Str("by=ci kernel=6.18".into()), &Field::Null));
        }
    }
    sample.run.labels = Labels { note: Some("after\nthe update".into()), ..Labels::default() };
    let row = rows(&file(&Parquet, &sample)).remove(0);
    assert_eq!((&row["run_tags"], &row["run_note"]), (&Field::Null, &Field::Str(r"after\nthe update".into())));
}

#[test]
fn samples_round_trip() {
    let sample = synthetic::full();
    let rows = rows(&file(&ParquetSamples, &sample));
    let mut index = 0;
    for measurement in &sample.run.measurements {
        for metric in &measurement.planned.metrics {
            for (round, reading) in measurement.readings(metric) {
                let count = match &reading.readings {
                    Readings::Scalars(values) => values.len(),
                    Readings::Batches(batches) => batches.len(),
                };
                for number in 0..count {
                    let row = &rows[index];
                    index += 1;
                    assert_eq!(row["metric"], Field::Str(metric.to_string()));
                    assert_eq!(row["round"], Field::ULong(round.index.into()));
                    assert_eq!(row["sample"], Field::ULong(number as u64));
                    match &reading.readings {
                        Readings::Scalars(values) => {
                            assert_eq!(row["value"], Field::Double(values[number]));
                            assert_eq!((&row["nanoseconds"], &row["tags"]), (&Field::Null, &Field::Null));
                        }
                        Readings::Batches(batches) => {
                            assert_eq!(row["nanoseconds"], Field::Double(batches.nanoseconds[number]));
                            assert_eq!(row["iterations"], Field::ULong(batches.iterations[number]));
                            assert_eq!(row["value"], Field::Null);
                        }
                    }
                }
            }
        }
    }
    assert!(index > 100 && index == rows.len(), "{index} of {}", rows.len());
}

#[test]
fn columns_have_types_and_units() {
    let file = file(&Parquet, &synthetic::full());
    let metadata = file.metadata().file_metadata();
    let logical = |name: &str| {
        let columns = metadata.schema_descr().columns();
        columns.iter().find(|column| column.name() == name).unwrap().logical_type_ref().cloned()
    };
    assert_eq!(logical("started"), Some(LogicalType::timestamp(true, TimeUnit::MICROS)));
    assert_eq!(logical("metric"), Some(LogicalType::String));
    assert_eq!(logical("axis_arguments"), Some(LogicalType::integer(64, false)));
    assert_eq!(logical("headline"), None);
    let units = metadata.key_value_metadata().unwrap().iter().find(|pair| pair.key == UNITS_KEY).unwrap();
    let units: BTreeMap<String, String> = serde_json::from_str(units.value.as_ref().unwrap()).unwrap();
    assert_eq!((units["headline"].as_str(), units["level"].as_str()), ("unit", "ratio"));
}

#[test]
fn run_without_figures_has_no_rows() {
    let empty = synthetic::empty();
    for format in [&Parquet as &dyn Render, &ParquetSamples] {
        let file = file(format, &empty);
        assert!(rows(&file).is_empty() && file.metadata().file_metadata().schema_descr().num_columns() > 10);
    }
}
