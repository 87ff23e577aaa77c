CREATE VIEW dashboard_run AS
SELECT to_timestamp(started_us / 1e6) AS time,
       run.id AS run,
       coalesce(node.value, left(run.machine, 8)) AS host,
       run.machine,
       coalesce(run.cpu_model, 'unknown') AS cpu_model,
       run.mode,
       coalesce(run.status, 'unfinished') AS status,
       run.seconds AS duration_seconds,
       run.kelvin AS kelvin_version,
       coalesce((SELECT jsonb_object_agg(name, value) FROM tag WHERE tag.run = run.key), '{}') AS tags
FROM run
LEFT JOIN tag AS node ON node.run = run.key AND node.name = 'node';

CREATE VIEW dashboard_figure AS
SELECT to_timestamp(run.started_us / 1e6) AS time,
       run.id AS run,
       coalesce(node.value, left(run.machine, 8)) AS host,
       run.machine,
       coalesce(run.cpu_model, 'unknown') AS cpu_model,
       run.mode,
       series.metric,
       series.version,
       coalesce((SELECT string_agg(key || '=' || value, ' ' ORDER BY key COLLATE "C") FROM json_each_text(CAST(series.axes AS JSON))), '') AS "case",
       CASE metric.unit WHEN 'nanoseconds' THEN 'seconds' ELSE metric.unit END AS unit,
       metric.better,
       metric.summary,
       headline.value * base.factor AS value,
       sqrt(headline.within_variance) * base.factor AS standard_error,
       headline.predicted * base.factor AS predicted,
       headline.predicted_low * base.factor AS predicted_low,
       headline.predicted_high * base.factor AS predicted_high
FROM headline
JOIN run ON run.key = headline.run
JOIN series ON series.key = headline.series
JOIN metric ON metric.id = series.metric AND metric.version = series.version
CROSS JOIN LATERAL (SELECT CASE metric.unit WHEN 'nanoseconds' THEN 1e-9 ELSE 1.0 END::DOUBLE PRECISION AS factor) AS base
LEFT JOIN tag AS node ON node.run = run.key AND node.name = 'node';
