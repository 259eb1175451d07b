/** PostgreSQL holds the contract of the store. */
import { describe } from 'node:test';
import { engineNamed } from '../support/engines.ts';
import { holdsTheContract } from './contract.ts';

describe('PostgreSQL', () => holdsTheContract(engineNamed('PostgreSQL')));
