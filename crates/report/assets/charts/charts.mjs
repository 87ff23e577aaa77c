// What the report draws with, of Apache ECharts: lines and bands, on two axes, as SVG.
import { init, use } from 'echarts/core';
import { CustomChart, LineChart } from 'echarts/charts';
import {
  GridComponent, LegendPlainComponent, MarkAreaComponent, MarkLineComponent, TitleComponent, TooltipComponent,
} from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';

use([
  LineChart, CustomChart, // Lines and markers; bands.
  GridComponent, TooltipComponent, MarkAreaComponent, MarkLineComponent,
  TitleComponent, LegendPlainComponent, // Of an exported figure.
  SVGRenderer,
]);

export { init };
