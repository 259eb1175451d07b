import type { JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { colours } from '../theme.ts';
import { useObservable } from '../observable.ts';
import { addressOf, go } from '../router.ts';
import { isolated } from './isolated.ts';
import { timeOfDay } from './time.tsx';

export interface Line {
  name: string;
  /** The custom property that holds its colour. */
  colour: `--${string}`;
  /** Null: the value is unknown, and the line has a gap. Undefined: there is no value, and the line continues. */
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
  /** Called with a range that somebody selects, in seconds since 1970; absent: no range can be selected. */
  onSelect?: (since_s: number, until_s: number) => void;
}

const HEIGHT_PX = 190;
/** A shorter drag is a click. */
const DRAG_PX = 6;

/** Lines over time. The legend shows the values at the pointer, at the selected time, or the latest. */
export function Chart({ title, at, lines, inWords, is_sparse = false, onSelect }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const heading = useId();
  const [pointed, setPointed] = useState<number | null>(null);
  /** The range that the keyboard selects; in seconds, because the indexes of a live chart change. */
  const [range, setRange] = useState<Range | null>(null);
  const select = useRef(onSelect);
  select.current = onSelect;
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
        cursor: {
          points: { size: 6 },
          drag: { x: onSelect !== undefined, y: false, setScale: false, dist: DRAG_PX },
          y: false,
        },
        // Half of the last label of the axis is to the right of the lines, and needs this room. Without data there is no
        // axis of time, and half of the lowest label is below the lines.
        padding: [8, 26, (_, side, has_axis) => (has_axis[side] ? 0 : 8), 0],
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
          { ...axis, size: 54, values: (chart, ticks) => labelsOf(ticks, hasValues(chart) ? inWords : () => '') },
        ],
        series: [
          {},
          ...lines.map(({ name, colour: property, is_dashed, is_filled }) => ({
            label: name,
            stroke: colour(property),
            width: 1.5,
            points: {
              show: is_sparse,
              size: 4,
              ...(!is_sparse && { filter: (chart, line) => isolated(Array.from(chart.data[line] ?? [])) }),
            } satisfies UPlot.Series.Points,
            ...(is_dashed && { dash: [4, 3] }),
            ...(is_filled && { fill: `color-mix(in srgb, ${colour(property)} 14%, transparent)` }),
          })),
        ],
        hooks: {
          setCursor: [({ cursor }) => setPointed(cursor.idx ?? null)],
          setSelect: [
            (chart) => {
              const { left, width } = chart.select;
              if (width < DRAG_PX) return;
              select.current?.(chart.posToVal(left, 'x'), chart.posToVal(left + width, 'x'));
              chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
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
  useEffect(() => {
    const chart = plot.current;
    if (chart === null) return;
    const ends = range === null ? [0, 0] : [range.from_s, range.to_s].map((s) => chart.valToPos(s, 'x'));
    const [left, right] = [Math.min(...ends), Math.max(...ends)];
    chart.setSelect({ left, top: 0, width: right - left, height: chart.over.clientHeight }, false);
  }, [at, range]);

  const end = indexOf(at, range?.to_s ?? Infinity);
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step !== undefined) {
      const to = Math.max(0, Math.min(at.length - 1, end + step));
      const to_s = at[to] as number;
      setRange({ from_s: event.shiftKey ? (range?.from_s ?? (at[end] as number)) : to_s, to_s });
      setPointed(null);
    } else if (event.key === 'Enter' && range !== null && range.from_s !== range.to_s) {
      onSelect?.(Math.min(range.from_s, range.to_s), Math.max(range.from_s, range.to_s));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const index = pointed ?? (range === null ? null : end);
  const shown = (values: Line['values']): string => {
    const value = index === null ? values.findLast((each) => each !== undefined) : values[index];
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
      {onSelect === undefined || at.length === 0 ? (
        <div key="plot" class="plot" ref={box} aria-hidden="true" />
      ) : (
        <div
          key="plot"
          class="plot"
          ref={box}
          role="slider"
          tabIndex={0}
          aria-label={`${title}: select a range`}
          aria-valuemin={0}
          aria-valuemax={at.length - 1}
          aria-valuenow={end}
          aria-valuetext={words(range ?? { from_s: at[end] as number, to_s: at[end] as number })}
          title="Drag over a range to see its deliveries. With the keyboard: arrows, Shift and arrows, Enter."
          onKeyDown={onKeyDown}
          onBlur={() => {
            setRange(null);
            setPointed(null);
          }}
        />
      )}
    </section>
  );
}

interface Range {
  from_s: number;
  to_s: number;
}

function words({ from_s, to_s }: Range): string {
  const [first, last] = [Math.min(from_s, to_s), Math.max(from_s, to_s)].map((s) => timeOfDay(s * 1000));
  return first === last ? `${first}` : `${first} to ${last}`;
}

/** The index of the last value at or before a time. */
function indexOf(at: readonly number[], s: number): number {
  return Math.max(
    0,
    at.findLastIndex((each) => each <= s),
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

/** Whether a chart has anything to draw. Without values its scale is arbitrary, so only the 0 has a label. */
function hasValues({ data: [, ...lines] }: UPlot): boolean {
  return lines.some((values) => values.some((value) => value !== null && value !== undefined));
}

/** The labels of an axis. A label that repeats the label below it is left out. */
function labelsOf(ticks: readonly (number | null)[], inWords: (value: number) => string): string[] {
  const labels = ticks.map((value) => (value === null ? '' : value === 0 ? '0' : inWords(value)));
  return labels.map((label, i) => (label === labels[i - 1] ? '' : label));
}

/** Shows the deliveries of a range of a chart: of one instance, or of all instances. */
export function deliveriesOf(query: Record<string, string>): (since_s: number, until_s: number) => void {
  const at = (s: number): string => new Date(s * 1000).toISOString();
  return (since_s, until_s) => go(addressOf(['deliveries'], { ...query, since: at(since_s), until: at(until_s) }));
}
