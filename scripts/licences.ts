/** Makes docs/licences.md: the packages that the service needs at run time, from the lockfile. */

interface LockedPackage {
  version?: string;
  license?: string;
  link?: true;
  dev?: true;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

const FOLDER = 'node_modules/';

/** @param lockfile the text of package-lock.json */
export function licencesTable(lockfile: string): string {
  const { packages } = JSON.parse(lockfile) as { packages: Record<string, LockedPackage> };
  const needed = Object.entries(packages).filter(([path, { dev, link }]) => path.includes(FOLDER) && !dev && !link);
  const needed_by = needersOf([['', packages['']!], ...needed]);
  const rows = new Set(
    needed.map(([path, { version, license }]) => {
      const name = nameOf(path);
      return `| \`${name}\` | ${version} | ${license ?? 'none'} | ${[...(needed_by.get(name) ?? [])].toSorted().join(', ')} |\n`;
    }),
  );
  return (
    '# Licences\n\n' +
    'The packages of others that the service needs at run time, as `package-lock.json` pins them. The reason for\n' +
    'each direct dependency is in [dependencies.md](dependencies.md). Convoke is MIT licensed.\n\n' +
    '| package | version | licence | needed by |\n| --- | --- | --- | --- |\n' +
    [...rows].toSorted().join('')
  );
}

/** For each package, by its name: the packages that need it. */
function needersOf(packages: [string, LockedPackage][]): Map<string, Set<string>> {
  const needed_by = new Map<string, Set<string>>();
  for (const [path, { dependencies, optionalDependencies }] of packages) {
    const needer = path === '' ? '**Convoke**' : nameOf(path);
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      needed_by.set(name, (needed_by.get(name) ?? new Set()).add(needer));
    }
  }
  return needed_by;
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf(FOLDER) + FOLDER.length);
}
