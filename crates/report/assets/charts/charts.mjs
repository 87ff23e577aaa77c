// What the report draws with, of Apache ECharts: lines, cells and bands, on two axes, as SVG.
import { init, use } from 'echarts/core';
import { CustomChart, LineChart } from 'echarts/charts';
import {
  GridComponent, LegendPlainComponent, MarkAreaComponent, MarkLineComponent, TitleComponent, TooltipComponent,
  VisualMapPiecewiseComponent,
} from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';

use([
  LineChart, CustomChart, // Lines and markers; bands, and the cells of heat maps.
  GridComponent, TooltipComponent, MarkAreaComponent, MarkLineComponent,
  TitleComponent, LegendPlainComponent, VisualMapPiecewiseComponent, // Of an exported figure.
  SVGRenderer,
]);

export { init };
