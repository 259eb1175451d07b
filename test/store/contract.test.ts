/** SQLite holds the contract of the store. random_commands.test.ts compares PostgreSQL with SQLite, and contract.slow.ts tests the contract with PostgreSQL. */
import { describe } from 'node:test';
import { engineNamed } from '../support/engines.ts';
import { holdsTheContract } from './contract.ts';

describe('SQLite', () => holdsTheContract(engineNamed('SQLite')));
