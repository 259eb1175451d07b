/** The tests of test/http/openapi_properties.slow.ts with many more inputs, and with new inputs in each run. */
process.env['FUZZ_RUNS'] ??= '1000';
process.env['FUZZ_SEED'] ??= String(Date.now() % 2 ** 31);
console.log(`FUZZ_SEED=${process.env['FUZZ_SEED']} FUZZ_RUNS=${process.env['FUZZ_RUNS']}`);
await import('../http/openapi_properties.slow.ts');
