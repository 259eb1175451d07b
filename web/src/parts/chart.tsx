import type { JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { colours } from '../theme.ts';
import { useObservable } from '../observable.ts';
import { timeOfDay } from './time.tsx';

export interface Line {
  name: string;
  /** The custom property that holds its colour. */
  colour: `--${string}`;
  /** Null where the value is unknown, which is a gap in the line; undefined where there is none, which is no gap. */
  values: (number | null | undefined)[];
  is_dashed?: boolean;
  is_filled?: boolean;
}

interface ChartProps {
  title: string;
  /** Seconds since 1970. */
  at: number[];
  lines: Line[];
  inWords: (value: number) => string;
  /** Sparse values: each is drawn as a point. */
  is_sparse?: boolean;
}

const HEIGHT_PX = 190;

/** Lines over time. The legend shows the values at the pointer, or the latest. */
export function Chart({ title, at, lines, inWords, is_sparse = false }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const heading = useId();
  const [pointed, setPointed] = useState<number | null>(null);
  const theme = useObservable(colours);
  const data = [at, ...lines.map(({ values }) => values)] as UPlot.AlignedData;

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const css = getComputedStyle(element);
    const colour = (name: string): string => css.getPropertyValue(name).trim();
    const font = `11px ${css.fontFamily}`;
    const axis = {
      stroke: colour('--faint'),
      font,
      grid: { stroke: colour('--line-soft'), width: 1 },
      ticks: { show: false },
    };
    const chart = new UPlot(
      {
        width: element.clientWidth || 300,
        height: HEIGHT_PX,
        legend: { show: false },
        cursor: { points: { size: 6 }, drag: { x: false, y: false }, y: false },
        // Half of the last label of the axis is to the right of the lines.
        padding: [8, 26, 0, 0],
        scales: { y: { range: (_, min, max) => [Math.min(0, min), niceTop(max)] } },
        axes: [
          {
            ...axis,
            grid: { show: false },
            size: 26,
            space: 70,
            incrs: [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600],
            values: (_, ticks) => ticks.map((s) => timeOfDay(s * 1000).slice(-8, s % 60 === 0 ? -3 : undefined)),
          },
          { ...axis, size: 54, values: (_, ticks) => labelsOf(ticks, inWords) },
        ],
        series: [
          {},
          ...lines.map(({ name, colour: property, is_dashed, is_filled }) => ({
            label: name,
            stroke: colour(property),
            width: 1.5,
            points: { show: is_sparse, size: 4 },
            ...(is_dashed && { dash: [4, 3] }),
            ...(is_filled && { fill: `color-mix(in srgb, ${colour(property)} 14%, transparent)` }),
          })),
        ],
        hooks: { setCursor: [({ cursor }) => setPointed(cursor.idx ?? null)] },
      },
      data,
      element,
    );
    plot.current = chart;
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [theme, is_sparse]);
  useEffect(() => plot.current?.setData(data), [at, lines]);

  const shown = (values: Line['values']): string => {
    const value = pointed === null ? values.findLast((each) => each !== undefined) : values[pointed];
    return value === null || value === undefined ? '–' : inWords(value);
  };
  return (
    <section class="panel chart" aria-labelledby={heading}>
      <header class="panel-head">
        <h2 id={heading}>{title}</h2>
        <dl class="legend">
          {lines.map(({ name, colour, values, is_dashed }) => (
            <div key={name}>
              <dt>
                <svg class="legend-line" viewBox="0 0 16 4" aria-hidden="true" style={{ color: `var(${colour})` }}>
                  <path d="M0 2h16" stroke-dasharray={is_dashed ? '4 2' : undefined} />
                </svg>
                {name}
              </dt>
              <dd>{shown(values)}</dd>
            </div>
          ))}
        </dl>
      </header>
      <div class="plot" ref={box} aria-hidden="true" />
    </section>
  );
}

/** The top of the scale: above the highest value, and above 0 when nothing happens. */
function niceTop(max: number | null): number {
  if (max === null || max <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  const steps = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
  const step = steps.find((step) => step * power >= max * 1.02) ?? 12;
  return step * power;
}

/** The labels of an axis. One that repeats the one below it says nothing. */
function labelsOf(ticks: readonly (number | null)[], inWords: (value: number) => string): string[] {
  const labels = ticks.map((value) => (value === null ? '' : value === 0 ? '0' : inWords(value)));
  return labels.map((label, i) => (label === labels[i - 1] ? '' : label));
}
