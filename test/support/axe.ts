/** Checks with axe whether people with a screen reader, only a keyboard, or weak eyes can use a page. */
import axe from 'axe-core';
import type { Page } from 'playwright-core';

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string; failureSummary: string }[];
}

/** The faults of a page that axe rates as serious or critical. */
export async function seriousIn(page: Page): Promise<string[]> {
  if (!(await page.evaluate<boolean>("'axe' in window"))) await page.evaluate(axe.source);
  const violations = await page.evaluate<Violation[]>(
    "axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)",
  );
  const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  return grave.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`));
}
