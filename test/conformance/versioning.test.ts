/** Spec section 9: versioning. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertProblem, useService } from '../support/service.ts';

describe('spec 9, versioning:', { concurrency: true }, () => {
  const service = useService();

  test('all endpoints carry the version segment v1 in the path prefix /api/v1/', async () => {
    const { body } = await service.get<{ paths: Record<string, object> }>('/openapi.json');
    const paths = Object.keys(body.paths);
    assert.ok(paths.length > 15, paths.join(' '));
    // Only the people who run the service request these paths; clients do not.
    const outside = paths.filter((path) => !path.startsWith('/api/v1/'));
    assert.deepEqual(outside.toSorted(), ['/healthz', '/metrics', '/readyz']);
  });

  for (const path of ['/instances/', '/api/instances/', '/v1/instances/', '/api/v2/instances/', '/API/V1/instances/']) {
    test(`there is nothing at ${path}`, async () => {
      assertProblem(await service.get(path), 404, 'route_does_not_exist');
    });
  }
});
