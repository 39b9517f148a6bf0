import{b as r}from"./chunk-BHHB6S7R.js";import{m17 as e}from"./core-BOX3TAS7.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
