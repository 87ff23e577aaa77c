/** What a dashboard of kelvin may be: Grafana's published types, with the panels and queries that are used. */
import type { Dashboard, DataQuery, FieldConfig, MatcherConfig, Panel } from '@grafana/schema';
import type { FieldConfig as StatusHistoryField, Options as StatusHistoryOptions } from '@grafana/schema/dist/esm/raw/composable/statushistory/panelcfg/x/StatusHistoryPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { FieldConfig as TableField, Options as TableOptions } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type { FieldConfig as TimeSeriesField, Options as TimeSeriesOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

/** A type as it is in JSON: a value of an enumeration is its text there. */
type Json<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T : T extends Array<infer Element> ? Json<Element>[] : T extends object ? { [Key in keyof T]: Json<T[Key]> } : T;

type Override<Custom> = {
  matcher: MatcherConfig;
  properties: Array<
    | { [Key in keyof Custom & string]: { id: `custom.${Key}`; value: Custom[Key] } }[keyof Custom & string]
    | { [Key in 'color' | 'unit' | 'decimals']: { id: Key; value: NonNullable<FieldConfig[Key]> } }['color' | 'unit' | 'decimals']
  >;
};

/** The queries of these data sources are published in their plugins alone: https://grafana.com/docs/grafana/latest/datasources/ */
type PrometheusQuery = Pick<DataQuery, 'refId' | 'datasource'> & { expr: string; legendFormat: string; instant: boolean; range: boolean; format: 'table' | 'time_series' };
type SqlQuery = Pick<DataQuery, 'refId' | 'datasource'> & { rawSql: string; format: 'table' | 'time_series'; rawQuery: true; editorMode: 'code' };

type PanelOf<Type, Options, Custom> = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type;
  options: Options;
  fieldConfig: { defaults: Omit<FieldConfig, 'custom'> & { custom?: Partial<Custom> }; overrides: Override<Custom>[] };
  targets: PrometheusQuery[] | SqlQuery[];
};

type AnyPanel =
  | PanelOf<'stat', StatOptions, {}>
  | PanelOf<'status-history', StatusHistoryOptions, StatusHistoryField>
  | PanelOf<'table', Partial<TableOptions>, TableField>
  | PanelOf<'timeseries', TimeSeriesOptions, TimeSeriesField>;

export type KelvinDashboard = Json<Omit<Dashboard, 'panels'> & { panels: AnyPanel[] }>;
