/**
 * Lets requests to a service in this process go past the proxy of the environment, which Node uses with
 * NODE_USE_ENV_PROXY. That proxy may be on another machine, and would not find the service. Node reads
 * `no_proxy` again when the variable has changed.
 */
export function goPastProxy(url: string): void {
  const others = process.env['no_proxy'] ?? process.env['NO_PROXY'] ?? '';
  if (others !== '*') process.env['no_proxy'] = [others, new URL(url).host].filter(Boolean).join(',');
}
